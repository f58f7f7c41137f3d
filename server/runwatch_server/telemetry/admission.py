"""Decides whether a received frame may be stored, by itself and by what is stored of its stream."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.errors import ConflictError, UnprocessableError
from runwatch_server.runs import queries as run_queries
from runwatch_server.runs.checks import STALE_ATTEMPT, check_rank, unknown_attempt
from runwatch_server.telemetry import ingest_queries as queries
from runwatch_server.telemetry.frame_rows import StreamState
from runwatch_server.telemetry.packs.queries import packed_checksum
from runwatch_server.web.zero_bytes import check_texts

MAX_UNSAID: Final = 1000
"""Most frames that may be missing before the one received without its sender saying that they are
lost: numbers that are far too high come from a fault, or from somebody else."""
MAX_AHEAD: Final = 1_000_000
"""The same for a sender that says so. A spool that overflows loses a few days of frames at most."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Received:
    """A frame that was decoded and whose columns fit its layout."""

    run_id: RunId
    frame: Frame
    layout: Layout | None
    body: bytes
    """The body as it is stored: as received without histograms, or a JSON frame in binary form."""
    checksum: int
    """CRC-32 of the body as received; with another one, the same key means another frame."""
    late: bool
    """Sent afterwards, when its attempt may have ended: it is not a sign of life."""


def check_contents(frame: Frame) -> None:
    """Raises FrameError or UnprocessableError for values that no trainer can have meant."""
    frame.check_arrival()
    events = [(event.kind, event.detail) for event in frame.events]
    histograms = [histogram.names for histogram in frame.histograms]
    check_texts("frame", (frame.metric_names, frame.layout_hash, events, histograms))
    if frame.attempt < 1:
        raise FrameError(f"attempt: found {frame.attempt}, wanted 1 or more")


async def is_to_be_stored(
    connection: AsyncConnection, received: Received, state: StreamState
) -> bool:
    """Whether the frame is to be stored; False if it is stored already.

    Raises UnprocessableError if another frame is stored under its number, if its number is too far
    ahead, and for a rank that its attempt does not have; NotFoundError for an attempt never opened,
    and ConflictError for one that is over.
    """
    # First of all: a frame whose acknowledgement was lost is accepted again, whatever has happened
    # to its attempt or run since. Otherwise its sender would retry forever.
    if await _is_held(connection, received, state):
        return False
    await _check_attempt(connection, received, state)
    _check_seq(received.frame, state)
    return True


async def _is_held(connection: AsyncConnection, received: Received, state: StreamState) -> bool:
    frame = received.frame
    if frame.seq > state.max_seq:
        return False
    key = (received.run_id, frame.attempt, frame.rank, frame.seq)
    held = await queries.find_checksum(connection, *key)
    if held is None:
        held = await packed_checksum(connection, *key)
    if held is None:  # below the mark: it was stored and later removed by retention
        return frame.seq < state.next_seq
    if held != received.checksum:
        raise UnprocessableError(
            "conflict",
            f"Frame {frame.seq} of attempt {frame.attempt}, rank {frame.rank} is stored with the "
            f"checksum {held:#010x}; found {received.checksum:#010x} under the same number.",
        )
    return True


async def _check_attempt(
    connection: AsyncConnection, received: Received, state: StreamState
) -> None:
    attempt = received.frame.attempt
    if attempt != state.current_attempt or state.is_new:
        known = await run_queries.find_attempt(connection, received.run_id, attempt)
        if known is None:
            raise unknown_attempt(attempt)
        check_rank(received.frame.rank, known)
    if received.late:
        return
    if attempt != state.current_attempt:
        raise ConflictError(
            STALE_ATTEMPT,
            f"Attempt {attempt} is not the live one (that is {state.current_attempt}); its "
            "remaining frames can be sent with late=true.",
        )
    if state.run_state.is_ended:
        raise ConflictError(
            "run_ended", f"The run is {state.run_state}; frames for it need late=true."
        )


def _check_seq(frame: Frame, state: StreamState) -> None:
    most = state.max_seq + min(frame.lost + MAX_UNSAID, MAX_AHEAD)
    if frame.seq > most:
        raise UnprocessableError(
            "seq_too_far",
            f"seq: found {frame.seq}, wanted at most {most}: the newest frame stored of attempt "
            f"{frame.attempt}, rank {frame.rank} is {state.max_seq}, and {frame.lost} before this "
            "one are said to be lost (`lost`).",
        )
