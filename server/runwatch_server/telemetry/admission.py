"""Whether a frame that has come in may be stored: by itself, and by what is held of its stream."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.errors import ConflictError, UnprocessableError
from runwatch_server.runs import queries as run_queries
from runwatch_server.runs.checks import check_rank, unknown_attempt
from runwatch_server.telemetry import ingest_queries as queries
from runwatch_server.telemetry.frame_rows import StreamState
from runwatch_server.telemetry.packs.queries import packed_checksum
from runwatch_server.texts import check_texts

MAX_AHEAD: Final = 1_000_000
"""Frames that may be missing before one: a spool that overflows loses days of them, no more. One
number far off would make all that follow look like frames of long ago."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Received:
    """A frame that was read, and whose columns fit its layout."""

    run_id: RunId
    frame: Frame
    layout: Layout | None
    body: bytes
    """As it is stored: as it was received but for histograms, or a JSON frame in binary form."""
    checksum: int
    """Of the body as it was received: the same key with another one is another frame."""
    late: bool
    """Sent after the fact, when its attempt may be over: it is no sign of life."""


def check_contents(frame: Frame) -> None:
    """Raises FrameError and UnprocessableError for what no trainer can mean."""
    frame.check_arrival()
    events = [(event.kind, event.detail) for event in frame.events]
    histograms = [histogram.names for histogram in frame.histograms]
    check_texts("frame", (frame.metric_names, frame.layout_hash, events, histograms))
    if frame.attempt < 1:
        raise FrameError(f"attempt: found {frame.attempt}, wanted 1 or more")


async def is_to_be_stored(
    connection: AsyncConnection, received: Received, state: StreamState
) -> bool:
    """False for a frame that is held already.

    Raises UnprocessableError where another one is held in its place, where it is numbered too far
    ahead, and for a rank that its attempt does not have; NotFoundError for an attempt never opened,
    and ConflictError for one that is over.
    """
    # Before anything else: a frame whose acknowledgement was lost is a success, whatever has
    # become of its attempt or its run, or its sender would send it for ever.
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
    if held is None:  # below the mark it was held once and has been removed for its age
        return frame.seq < state.next_seq
    if held != received.checksum:
        raise UnprocessableError(
            "conflict",
            f"Frame {frame.seq} of attempt {frame.attempt}, rank {frame.rank} is held with the "
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
            "stale_attempt",
            f"Attempt {attempt} is not the live one (that is {state.current_attempt}); what it "
            "still holds can be sent with late=true.",
        )
    if state.run_state.is_ended:
        raise ConflictError(
            "run_ended", f"The run is {state.run_state}; frames for it need late=true."
        )


def _check_seq(frame: Frame, state: StreamState) -> None:
    if frame.seq > state.max_seq + MAX_AHEAD:
        raise UnprocessableError(
            "seq_too_far",
            f"seq: found {frame.seq}, wanted at most {state.max_seq + MAX_AHEAD}: the newest frame "
            f"held of attempt {frame.attempt}, rank {frame.rank} is {state.max_seq}.",
        )
