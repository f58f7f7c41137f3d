"""The service's HTTP API as used by the hook, with typed messages, replies and errors."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from runwatch.codec import CONTENT_TYPE
from runwatch.commands import Receipt
from runwatch.frames import Event
from runwatch.messages import (
    ATTEMPT_TOKEN_HEADER,
    SIGNATURES,
    UNDERSTANDS_HEADER,
    WRONG_ATTEMPT_TOKEN,
    AttemptClose,
    AttemptOpen,
    AttemptOpened,
    CommandsReply,
    FrameReply,
    Heartbeat,
    HeartbeatReply,
    Problem,
    RunOpen,
)
from runwatch.nonfinite import to_json
from runwatch.vocabulary import RunId
from runwatch_hooks.own_log import from_elsewhere
from runwatch_hooks.uplink.client import (
    JSON,
    Client,
    ForbiddenError,
    RefusedError,
    Reply,
    RetryLaterError,
    StaleAttemptError,
    UnknownAttemptError,
    UnknownLayoutError,
    UplinkError,
)

_RETRYABLE: Final = frozenset({408, 425, 429})
_LONGEST_RETRY_AFTER_S: Final = 3600.0

_KINDS: Final[dict[str, type[RefusedError]]] = {
    "stale_attempt": StaleAttemptError,
    "run_ended": StaleAttemptError,
    "unknown_layout": UnknownLayoutError,
    WRONG_ATTEMPT_TOKEN: UnknownAttemptError,
}

_Message = TypeVar("_Message")


class Service:
    """The calls for one attempt of a run, which its token proves to come from it. Every method
    raises UplinkError."""

    def __init__(self, client: Client, run_id: RunId, token: str) -> None:
        self._client = client
        self._proof = {ATTEMPT_TOKEN_HEADER: token}
        self._run = f"/runs/{quote(run_id, safe='')}"

    def open_run(self, run: RunOpen) -> None:
        self._send("POST", "/runs", run)

    def open_attempt(self, attempt: AttemptOpen) -> AttemptOpened:
        path = f"{self._run}/attempts"
        body = msgspec.json.encode(attempt)
        reply = self._client.request("POST", path, body, headers={UNDERSTANDS_HEADER: SIGNATURES})
        return _parse(_checked(reply, path), AttemptOpened)

    def close_attempt(self, attempt: int, closing: AttemptClose) -> None:
        self._send("POST", f"{self._run}/attempts/{attempt}/close", closing)

    def put_layout(self, layout_hash: str, document: dict[str, object]) -> None:
        self._send("PUT", f"{self._run}/layouts/{layout_hash}", document)

    def send_frame(self, body: bytes, *, late: bool) -> FrameReply:
        path = f"{self._run}/frames" + ("?late=true" if late else "")
        reply = self._client.request(
            "POST", path, body, content_type=CONTENT_TYPE, headers=self._proof
        )
        return _parse(_checked(reply, path), FrameReply)

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return _parse(self._send("POST", f"{self._run}/heartbeat", beat), HeartbeatReply)

    def next_commands(self, attempt: int, rank: int, wait_s: float) -> CommandsReply:
        query = urlencode({"attempt": attempt, "rank": rank, "wait_s": f"{wait_s:g}"})
        path = f"{self._run}/commands/next?{query}"
        reply = self._client.request("GET", path, wait_s=wait_s, headers=self._proof)
        return _parse(_checked(reply, path), CommandsReply)

    def send_receipt(self, receipt: Receipt) -> None:
        command = quote(receipt.command_id, safe="")
        self._send("POST", f"/commands/{command}/receipt", receipt)

    def _send(self, method: str, path: str, message: object) -> Reply:
        body = msgspec.json.encode(message)
        reply = self._client.request(method, path, body, content_type=JSON, headers=self._proof)
        return _checked(reply, path)


def _parse(reply: Reply, message: type[_Message]) -> _Message:
    try:
        return msgspec.json.decode(reply.body, type=message)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise RetryLaterError(f"reply: found no {message.__name__} ({error})") from error


def _checked(reply: Reply, path: str) -> Reply:
    if not 200 <= reply.status < 300:
        raise _error(reply, path)
    if reply.body and not reply.content_type.startswith(JSON):  # a proxy's login page
        found = from_elsewhere(reply.content_type)
        raise RetryLaterError(f"{path}: found a reply of type {found!r}, wanted JSON")
    return reply


def _error(reply: Reply, path: str) -> UplinkError:
    problem = _problem(reply)
    said = from_elsewhere(f"{problem.code} {problem.detail}")
    message = f"{path}: {reply.status} {said}".rstrip()
    if reply.location is not None:  # following a redirect could send the key elsewhere
        place = from_elsewhere(reply.location)
        message = f"{message} to {place}, which is not followed: the address is another"
    if reply.status in (401, 403) and problem.code != WRONG_ATTEMPT_TOKEN:
        return ForbiddenError(message)
    if reply.status in _RETRYABLE or not 400 <= reply.status < 500:
        return RetryLaterError(message, retry_after_s(reply.retry_after))
    kind = _KINDS.get(problem.code, RefusedError)
    return kind(message, status=reply.status, code=problem.code)


def _problem(reply: Reply) -> Problem:
    try:
        return msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return Problem(title="", status=reply.status, code="")


def retry_after_s(header: str | None) -> float | None:
    """Seconds from a Retry-After header. None for a date, as some proxies send: then the hook's own
    backoff applies."""
    try:
        seconds = float(header or "nan")
    except ValueError:
        return None
    return min(seconds, _LONGEST_RETRY_AFTER_S) if seconds >= 0 else None


_FIRST_S: Final = 0.5
_LONGEST_S: Final = 60.0
_LARGEST_EXPONENT: Final = 7
"""0.5 s doubled seven times exceeds the longest pause; further powers would only overflow."""


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with jitter, so that many trainers do not ask at the same time."""

    num_failures: int = 0

    def failed(self, jitter: float, retry_after_s: float | None = None) -> float:
        """Seconds until the next try. `jitter` is a random number from 0 to 1.

        A pause that the service asked for is extended by up to a half, and never shortened. It is
        at least 0.5 s, or a wish for no pause would let all trainers ask as fast as they can.
        """
        exponent = min(self.num_failures, _LARGEST_EXPONENT)
        self.num_failures += 1
        if retry_after_s is not None:
            return max(retry_after_s, _FIRST_S) * (1 + jitter / 2)
        return min(math.ldexp(_FIRST_S, exponent), _LONGEST_S) * (1 - jitter / 2)

    def succeeded(self) -> None:
        self.num_failures = 0


# Makes any text encodable as UTF-8 and storable by the service, and any number a JSON one. A file
# name with an invalid byte contains a lone surrogate, and may occur in the text of an exception. A
# zero byte cannot be stored by PostgreSQL, so the whole frame or run would be refused.

UNENCODABLE: Final = (ValueError, TypeError, OverflowError)
"""What encoders raise. To be caught, or the sender would never get past the item."""


def sendable(text: str) -> str:
    """The text, with question marks for lone surrogates and zero bytes."""
    return text.encode(errors="replace").replace(b"\0", b"?").decode()


def sendable_document(value: Any) -> Any:
    """Like `sendable`, for every text in a value of JSON types. NaN and infinities become "NaN",
    "+Inf" and "-Inf": an encoder of JSON would make null of them, which is 'not recorded'."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, float):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [sendable_document(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {sendable_document(name): sendable_document(one) for name, one in items}
    return value


def sendable_event(event: Event) -> Event:
    detail = sendable_document(event.detail)
    return msgspec.structs.replace(event, kind=sendable(event.kind), detail=detail)


def sendable_receipt(receipt: Receipt) -> Receipt:
    return msgspec.structs.replace(receipt, detail=sendable_document(receipt.detail))


_NUM_SAMPLES: Final = 30
"""Five minutes of heartbeats: enough to include a fast reply, and few enough for clock drift."""
_DRIFT_S: Final = 1.0
"""More than two clocks drift apart in that time, also while one of them is being corrected: at 500
parts in a million, as fast as NTP slews, it is 0.15 s."""

_ERROR_S: Final = 5.0
"""A machine whose clock is set over the network is some milliseconds off, and a second or two if it
is set by hand. `runwatch doctor` mentions three."""


def running_s() -> float:
    """Seconds of a clock that is never set. It continues during system sleep where the platform has
    such a clock (Linux), and is `time.monotonic` elsewhere."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


@dataclass(frozen=True, slots=True, order=True)
class _Sample:
    round_trip_s: float
    ahead_s: float

    def agrees_with(self, other: "_Sample") -> bool:
        """Whether one clock may have given both. A reply was written somewhere on its round trip,
        so it tells the time to within half of that."""
        uncertain_s = (self.round_trip_s + other.round_trip_s) / 2
        return abs(self.ahead_s - other.ahead_s) <= uncertain_s + _DRIFT_S


@dataclass(slots=True)
class ServiceClock:
    """The service's time. This machine's wall clock may be set during the training, which must not
    make commands expire early or late. So it is used only until the first reply."""

    wall: Callable[[], float] = time.time
    running: Callable[[], float] = running_s
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_NUM_SAMPLES))
    _ahead_s: float | None = None
    """How far the service's clock is ahead of the running one."""
    _told_s: float = 0.0
    """The error of this machine's clock that was reported last."""

    def observe(self, *, service_time: float, sent_at: float, received_at: float) -> None:
        """A reply contained `service_time`; the other times are of the running clock. The reply
        with the shortest round trip gives the most exact estimate. One that contradicts it means
        that the service's clock was set: what it said before no longer counts."""
        middle = (sent_at + received_at) / 2
        sample = _Sample(max(received_at - sent_at, 0.0), service_time - middle)
        if self._samples and not sample.agrees_with(min(self._samples)):
            self._samples.clear()
        self._samples.append(sample)
        self._ahead_s = min(self._samples).ahead_s

    def now(self) -> float:
        return self.wall() if self._ahead_s is None else self.running() + self._ahead_s

    def take_error(self) -> float | None:
        """How many seconds this machine's wall clock is ahead of the service's (negative: behind),
        if that is worth a report: 5 s or more, surely, and 5 s away from what was reported."""
        if not self._samples:
            return None
        error_s = self.wall() - self.now()
        unsure_s = min(self._samples).round_trip_s / 2
        if abs(error_s) < _ERROR_S:
            self._told_s = 0.0
        if min(abs(error_s), abs(error_s - self._told_s)) < _ERROR_S + unsure_s:
            return None
        self._told_s = error_s
        return error_s
