"""Reports the end of a job that could not do so itself: killed, or exited without its handlers.

Otherwise such a run would be noticed only after a long silence, and only the job's parent process
knows how it ended.
"""

import os
import signal
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import httpx
import msgspec

from runwatch.messages import ATTEMPT_TOKEN_HEADER, AttemptOpen
from runwatch.vocabulary import RunState
from runwatch_server.cli.job_service import JobService

_BY_PEOPLE: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that people and schedulers send to stop a run; with any other signal it failed."""


class _Run(msgspec.Struct):
    state: RunState
    current_attempt: int | None


class _Attempt(msgspec.Struct):
    attempt: int
    started_at: datetime


class _Attempts(msgspec.Struct):
    attempts: list[_Attempt]


class _SpoolMeta(msgspec.Struct):
    attempt: AttemptOpen


def report_end(service: JobService, run_id: str, code: int, *, began_at: float) -> str | None:
    """Closes the attempt that a job with this exit code left open; returns how, in words.

    `code` is that of `run_job`; `began_at` is when the job began, in Unix seconds: an older attempt
    is not the job's. Nothing is closed if the code is 0: such a job may have handed its training on
    to another process. None, and nothing is done, if the service does not answer: it will find the
    run lost.
    """
    if code == 0:
        return None
    try:
        attempt = _left_open(service, run_id, began_at)
        if attempt is None:
            return None
        status, reason = _ending(code)
        path = f"/runs/{run_id}/attempts/{attempt}/close"
        closing = {"status": status, "reason": reason}
        answer = service.ask("POST", path, closing, _proof(run_id))
    except httpx.HTTPError:
        return None
    return reason if answer.is_success else None


def _proof(run_id: str) -> dict[str, str]:
    """The token of the job's newest attempt, from the spool that the job has left. Not needed for
    the close with a key that has the scope `control`, as that of a local service."""
    folder = Path(os.environ.get("RUNWATCH_SPOOL") or "runwatch-spool") / run_id
    for file in sorted(folder.glob("*-0/meta.json"), reverse=True):
        with suppress(OSError, msgspec.DecodeError):
            meta = msgspec.json.decode(file.read_bytes(), type=_SpoolMeta)
            return {ATTEMPT_TOKEN_HEADER: meta.attempt.token}
    return {}


def _left_open(service: JobService, run_id: str, began_at: float) -> int | None:
    run = service.get(f"/runs/{run_id}", _Run)
    if run is None or run.state.is_ended:
        return None
    current = f"next_token={max((run.current_attempt or 0) - 1, 0)}&limit=1"
    found = service.get(f"/runs/{run_id}/attempts?{current}", _Attempts)
    if found is None:
        return None
    for attempt in found.attempts:
        if attempt.attempt == run.current_attempt and attempt.started_at.timestamp() >= began_at:
            return attempt.attempt
    return None


def _ending(code: int) -> tuple[Literal["failed", "stopped"], str]:
    try:
        number = signal.Signals(code - 128)
    except ValueError:
        return "failed", f"the job ended with exit code {code}; its hook did not report an end"
    status: Literal["failed", "stopped"] = "stopped" if number in _BY_PEOPLE else "failed"
    return status, f"the job was ended by {number.name}"
