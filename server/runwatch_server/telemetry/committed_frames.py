"""The interface between telemetry and judging: what ingest tells the evaluators."""

from dataclasses import dataclass
from typing import Protocol

from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, weakref_slot=True)
class CommittedFrame:
    """A frame that has been stored."""

    run_id: RunId
    attempt: int
    rank: int
    seq: int
    frame: Frame
    layout: Layout | None
    late: bool = False
    """Sent afterwards: it is judged, but never leads to a command."""
    project: str = ""
    num_bytes: int = 0
    """Memory that the frame takes."""


class Committed(Protocol):
    """Is notified of each frame once, after its commit, on the event loop; must not block or
    raise."""

    def __call__(self, frame: CommittedFrame) -> None: ...
