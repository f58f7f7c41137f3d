"""The service's HTTP API as used by the hook, with typed messages, replies and errors."""

from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from runwatch.codec import CONTENT_TYPE
from runwatch.commands import Receipt
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
from runwatch.vocabulary import RunId
from runwatch_hooks.own_log import from_elsewhere
from runwatch_hooks.transport.client import JSON, Client, Reply
from runwatch_hooks.transport.errors import (
    ForbiddenError,
    RefusedError,
    RetryLaterError,
    StaleAttemptError,
    TransportError,
    UnknownAttemptError,
    UnknownLayoutError,
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
    raises TransportError, see `errors`."""

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


def _error(reply: Reply, path: str) -> TransportError:
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
