"""A frame as it is stored, and the state of its stream before it."""

from dataclasses import dataclass
from typing import Final

from runwatch.vocabulary import RunId, RunState
from runwatch_server.telemetry.buckets import LEVELS, TILE_STEPS

_UNIT: Final = TILE_STEPS[LEVELS[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The state of a run and of one of its streams before the next frame is stored."""

    run_state: RunState
    project: str
    current_attempt: int
    next_seq: int
    max_seq: int
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRow:
    """A frame's row without its body."""

    run_id: RunId
    attempt: int
    rank: int
    seq: int
    segment: int
    first_step: int
    num_steps: int
    layout_hash: str
    checksum: int
    late: bool
    received_at: float

    @property
    def last_step(self) -> int:
        return self.first_step + self.num_steps - 1

    @property
    def aligned_step(self) -> int:
        """The first step of the rollup that holds the frame's first step."""
        return self.first_step - self.first_step % _UNIT
