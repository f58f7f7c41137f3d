"""Checks before a run or one of its attempts may change."""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import InvalidInputError
from runwatch.messages import TEXT_LIMIT, is_name
from runwatch.ulids import is_ulid
from runwatch.vocabulary import RunId
from runwatch_server.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnprocessableError,
)
from runwatch_server.runs import queries
from runwatch_server.runs.queries import Attempt, Run

STALE_ATTEMPT: Final = "stale_attempt"
"""Code of the refusal of an attempt that a newer one has replaced."""


async def existing_run(connection: AsyncConnection, run_id: RunId) -> Run:
    """Raises NotFoundError."""
    run = await queries.find_run(connection, run_id)
    if run is None:
        raise run_not_found(run_id)
    return run


def check_current(run: Run, attempt: int) -> None:
    """Raises ConflictError unless this is the run's live attempt and the run goes on."""
    if attempt < run.current_attempt:
        raise ConflictError(
            STALE_ATTEMPT,
            f"Attempt {attempt} was fenced off by the newer attempt {run.current_attempt}.",
        )
    if run.state.is_ended:
        raise ConflictError(
            "run_ended", f"The run is {run.state}. Open a new attempt, or send with late=true."
        )


def check_proven(attempt: int, proven: int) -> None:
    """Raises ForbiddenError unless a request is about the attempt that its token proves."""
    if attempt != proven:
        raise ForbiddenError(
            "other_attempt",
            f"attempt: found {attempt}, wanted {proven}, whose token the request has.",
        )


def check_rank(rank: int, attempt: Attempt) -> None:
    """Raises UnprocessableError for a rank that the attempt does not have."""
    if not 0 <= rank < attempt.world_size:
        raise UnprocessableError(
            "wrong_rank",
            f"rank: found {rank}, wanted 0 to {attempt.world_size - 1}: attempt {attempt.attempt} "
            f"was opened with world_size {attempt.world_size}.",
        )


def run_not_found(run_id: RunId) -> NotFoundError:
    wanted = "" if is_ulid(run_id) else " Wanted: a run's id, 26 letters and digits, not its name."
    return NotFoundError("run_not_found", f"There is no run {run_id!r}.{wanted}")


def unknown_attempt(attempt: int) -> NotFoundError:
    return NotFoundError(
        "unknown_attempt", f"Attempt {attempt} of the run was never opened: POST .../attempts."
    )


def check_name(place: str, found: str) -> None:
    """Raises InvalidInputError."""
    check_text(
        place, found[:TEXT_LIMIT], is_name(found), f"1 to {TEXT_LIMIT} characters, not blank"
    )


def check_document(place: str, found: Mapping[str, object], *, most: int) -> None:
    """Raises InvalidInputError for a document of more bytes, as JSON."""
    num_bytes = len(msgspec.json.encode(found))
    if num_bytes > most:
        raise InvalidInputError(f"{place}: found {num_bytes} bytes of JSON, wanted at most {most}")


def check_text(place: str, found: str, holds: bool, wanted: str) -> None:
    """Raises InvalidInputError, which names the place, unless what is wanted holds."""
    if not holds:
        raise InvalidInputError(f"{place}: found {found!r}, wanted {wanted}")
