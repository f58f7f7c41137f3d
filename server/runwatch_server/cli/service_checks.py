"""Checks that the service answers, what our key may do there, and how far the clocks differ."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, Literal

import httpx
import msgspec

from runwatch.addresses import without_user
from runwatch.findings import Finding, Verdict
from runwatch.key_texts import trimmed
from runwatch_server.auth.keys import KeyScope
from runwatch_server.cli.answers import UnexpectedAnswerError, answer_of, document_of
from runwatch_server.cli.client import AddressError, KeyTextError, new_http

_SKEW_TOLD_S: Final = 3.0
"""Tolerance in seconds: the Date header has whole seconds, and an answer takes some time."""
_SKEW_WRONG_S: Final = 60.0
_ADVICE: Final = "start one with `runwatch serve`, or set RUNWATCH_URL to where it is"
_NO_COMMAND: Final = "00000000000000000000000000"
_PROBES: Final = (
    (KeyScope.INGEST, "POST", "/runs"),
    (KeyScope.READ, "GET", "/runs?limit=1"),
    (KeyScope.CONTROL, "POST", f"/commands/{_NO_COMMAND}/cancel"),
    (KeyScope.ADMIN, "GET", "/keys"),
)
"""Requests that change nothing: one has no body, one names a command that cannot exist."""


class _Ready(msgspec.Struct, frozen=True):
    status: Literal["ready"]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    words: str
    skew_s: float | None
    """Seconds by which the service's clock is ahead of ours; negative if it is behind."""


def check_service(url: str, token: str) -> Iterator[Finding]:
    try:
        with new_http(url, token) as http:
            yield from _checked(http, url, trimmed(token))
    except AddressError as error:
        yield Finding("service", "RUNWATCH_URL", Verdict.WRONG, str(error))
    except KeyTextError as error:
        yield Finding("service", "RUNWATCH_TOKEN", Verdict.WRONG, str(error))
    except httpx.HTTPError as error:
        is_asked_for = "RUNWATCH_URL" in os.environ or bool(token)
        verdict = Verdict.WRONG if is_asked_for else Verdict.NOTE
        yield Finding("service", without_user(url), verdict, f"does not answer ({error})", _ADVICE)


def _checked(http: httpx.Client, url: str, token: str) -> Iterator[Finding]:
    ready = http.get(f"{url.rstrip('/')}/readyz")
    if fault := _fault_of_ready(ready):
        found = f"is not a Runwatch service: {fault}"
        yield Finding("service", without_user(url), Verdict.WRONG, found, _ADVICE)
        return
    is_ready = ready.status_code == HTTPStatus.OK
    found = "is ready" if is_ready else f"is not ready: {ready.status_code} {ready.text[:200]}"
    yield Finding("service", without_user(url), Verdict.GOOD if is_ready else Verdict.WRONG, found)
    if not token:
        advice = "set RUNWATCH_TOKEN; `runwatch keys create` makes one"
        yield Finding("service", "key", Verdict.NOTE, "none given", advice)
        return
    answers = {scope: _ask(http, method, path) for scope, method, path in _PROBES}
    yield _key(answers, token)
    skew_s = next((one.skew_s for one in answers.values() if one.skew_s is not None), None)
    if skew_s is not None:
        yield _clock(skew_s)


def _fault_of_ready(answer: httpx.Response) -> str:
    """Why an answer that all is well cannot be the service's; empty if it may."""
    if answer.is_redirect:
        return f"found the status {answer.status_code}, a redirect"
    if answer.is_error:
        return ""
    try:
        answer_of(answer, _Ready)
    except UnexpectedAnswerError as error:
        return str(error)
    return ""


def _ask(http: httpx.Client, method: str, path: str) -> _Answer:
    before = time.time()
    answer = http.request(method, path)
    now = (before + time.time()) / 2
    dated = _date_of(answer)
    skew_s = None if dated is None else dated + 0.5 - now
    problem = document_of(answer) if answer.is_error else None
    words = str((problem or {}).get("detail", ""))
    return _Answer(answer.status_code, words, skew_s)


def _date_of(answer: httpx.Response) -> float | None:
    """Unix seconds; None if the answer tells no time, or a proxy wrote another text there."""
    try:
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


def _key(answers: dict[KeyScope, _Answer], token: str) -> Finding:
    refusal = next(
        (one.words for one in answers.values() if one.status == HTTPStatus.UNAUTHORIZED), None
    )
    if refusal is not None:
        advice = "set RUNWATCH_TOKEN to a key of this service"
        return Finding("service", "key", Verdict.WRONG, refusal, advice)
    held = [scope.value for scope, one in answers.items() if one.status != HTTPStatus.FORBIDDEN]
    key_id = token.split("_")[1] if token.count("_") >= 2 else "?"
    found = f"{key_id}, which may {', '.join(held) or 'do nothing'}"
    return Finding("service", "key", Verdict.GOOD if held else Verdict.WRONG, found)


def _clock(skew_s: float) -> Finding:
    found = f"the service's is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
    if abs(skew_s) < _SKEW_TOLD_S:
        return Finding("service", "clock", Verdict.GOOD, "within 3 s of the service's")
    advice = "synchronize both (NTP): attempts are ordered by the trainers' clocks"
    is_wrong = not abs(skew_s) < _SKEW_WRONG_S
    return Finding("service", "clock", Verdict.WRONG if is_wrong else Verdict.NOTE, found, advice)
