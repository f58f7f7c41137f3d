"""A stream of frames, of one rank in one attempt, put in order and judged."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from runwatch_server.alerts.evaluation.onset_order import (
    START,
    Held,
    Place,
    first_broken,
    follows,
)
from runwatch_server.alerts.judging import Judge
from runwatch_server.alerts.records import Evaluation
from runwatch_server.telemetry.committed_frames import CommittedFrame

log = logging.getLogger(__name__)

MAX_HELD: Final = 64
"""Most frames kept in memory; further ones are read back from the database in their turn."""

GAP_TIMEOUT_S: Final = 30.0
"""Seconds after which a missing frame is skipped; if it comes later, it is judged then."""

STATE_EVERY_FRAMES: Final = 64
"""Fewest frames between two saves of an evaluator's state."""
STATE_SHARE: Final = 0.25
"""Largest share of the bytes written that states may take: windows of many layers are larger than
their frames."""
STATE_AT_MOST_FRAMES: Final = 512
"""Most frames that a restart judges again, silently."""


@dataclass(frozen=True, slots=True)
class StreamKey:
    attempt: int
    rank: int


class FrameQueue:
    """Hands out frames in the order of their sequence numbers, each once. `has_room` says whether a
    frame may be kept in memory until its turn; otherwise it is read back from the database."""

    def __init__(self, next_seq: int, has_room: Callable[[CommittedFrame], bool]) -> None:
        self._has_room = has_room
        self.next_seq = next_seq
        self.newest_seq = next_seq - 1
        """The highest sequence number known to be stored."""
        self._held: dict[int, CommittedFrame] = {}

    @property
    def is_behind(self) -> bool:
        return self.newest_seq >= self.next_seq

    @property
    def num_waiting(self) -> int:
        """Number of frames that are, or may be, stored and are not judged yet."""
        return max(self.newest_seq - self.next_seq + 1, 0)

    def note(self, newest_seq: int) -> None:
        """Note that frames up to this one are, or may be, stored."""
        self.newest_seq = max(self.newest_seq, newest_seq)

    def put(self, frame: CommittedFrame) -> None:
        self.note(frame.seq)
        is_due = frame.seq >= self.next_seq
        if is_due and len(self._held) < MAX_HELD and self._has_room(frame):
            self._held[frame.seq] = frame

    def take(self, most: int) -> list[CommittedFrame]:
        """The next frames that are held without a gap; they stay in the queue until `done`."""
        taken: list[CommittedFrame] = []
        while len(taken) < most and self.next_seq + len(taken) in self._held:
            taken.append(self._held[self.next_seq + len(taken)])
        return taken

    def done(self, last_seq: int) -> None:
        """All frames up to this one are dealt with."""
        self.next_seq = last_seq + 1
        self._held = {seq: frame for seq, frame in self._held.items() if seq > last_seq}


@dataclass(slots=True)
class Stream:
    """A stream that is being judged."""

    evaluation: Evaluation
    """The progress as it is stored."""
    is_stored: bool
    judge: Judge
    queue: FrameQueue
    project: str
    has_begun: bool = False
    """Whether a live frame of it has been judged since the service started."""
    is_explained: bool = True
    """Whether an alert of it is explained by another rank's and waits for that to end; it has to be
    looked up first."""
    gap_since: float | None = None
    """When the wait for a missing frame began, on the monotonic clock; None if none is awaited."""
    held: Held | None = None
    """A broken row that waits for rank 0's rows of earlier steps."""
    missed_at: Place | None = None
    """How far rank 0 was known when it was last awaited in vain."""
    judged_until: Place = START
    """The last step that was judged since the service started."""
    passed_over: set[int] = field(default_factory=set[int])
    """Frames that came after the watermark had passed them and are to be judged."""
    num_bytes: int = 0
    """About how much memory its evaluator and its saved state take."""
    unsaved_bytes: int = 0
    """Bytes of the frames judged since the state was saved."""

    @property
    def is_behind(self) -> bool:
        return self.queue.is_behind or bool(self.passed_over)

    @property
    def state_is_due(self) -> bool:
        """Whether the state is to be saved once the frames judged so far are."""
        num_frames = self.queue.next_seq - 1 - self.evaluation.state_seq
        if num_frames < STATE_EVERY_FRAMES:
            return False
        is_cheap = len(self.evaluation.state) <= STATE_SHARE * self.unsaved_bytes
        return is_cheap or num_frames >= STATE_AT_MOST_FRAMES

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.evaluation.attempt, self.evaluation.rank)

    def wait_left_s(self, now: float) -> float | None:
        """Seconds until a missing frame is skipped, or rank 0's rows are awaited no longer; None if
        nothing is awaited."""
        if self.gap_since is not None:
            return self.gap_since + GAP_TIMEOUT_S - now
        return None if self.held is None else self.held.left_s(now)

    def in_line(self, frames: list[CommittedFrame], now: float) -> list[CommittedFrame]:
        """The frames, at least one and given in order, up to the first that is missing; past it
        once the wait is over, or if its sender says that it is lost."""
        first_seq = self.queue.next_seq
        if frames[0].seq > first_seq:
            self.gap_since = now if self.gap_since is None else self.gap_since
            is_lost = frames[0].frame.lost >= frames[0].seq - first_seq
            if not is_lost and now - self.gap_since < GAP_TIMEOUT_S:
                return []
            log.warning(
                "run %s, attempt %d, rank %d: frames %d to %d did not come and are passed over",
                self.evaluation.run_id,
                self.evaluation.attempt,
                self.evaluation.rank,
                first_seq,
                frames[0].seq - 1,
            )
            first_seq = frames[0].seq
        self.gap_since = None
        in_line = [frame for index, frame in enumerate(frames) if frame.seq == first_seq + index]
        # Late frames lead to no commands; they must not suppress those of live frames behind them.
        return list(takewhile(lambda frame: frame.late == in_line[0].late, in_line))

    def in_turn(
        self, frames: list[CommittedFrame], sound_until: Callable[[], Place], now: float
    ) -> list[CommittedFrame]:
        """The frames, given in order, up to the first with a broken row that waits for rank 0.
        `sound_until` says how far rank 0 is known, and is asked only if something broke. If rank 0
        was awaited in vain, it is not awaited again before it has moved on, and nobody waits for
        what was sent afterwards."""
        held, self.held = self.held, None
        sound: Place | None = None
        for index, one in enumerate(frames):
            broken = None if one.late else first_broken(one.frame)
            if broken is None:
                continue
            sound = sound_until() if sound is None else sound
            if sound == self.missed_at or follows(broken, sound):
                continue
            held = held if held is not None and held.broken == broken else Held(broken, now)
            if held.left_s(now) > 0.0:
                self.held = held
                return frames[:index]
            self.missed_at = sound
        return frames
