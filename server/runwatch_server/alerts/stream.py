"""One stream of frames, one rank's of one attempt: put in order, and judged."""

import logging
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from runwatch_server.alerts.judging import Judge
from runwatch_server.alerts.records import Evaluation
from runwatch_server.telemetry.seams import CommittedFrame

log = logging.getLogger(__name__)

MAX_HELD: Final = 64
"""Frames kept in memory; what comes beyond is read back from disk when its turn has come."""

GAP_TIMEOUT_S: Final = 30.0
"""A frame that is missing for so long is passed over."""

STATE_EVERY_FRAMES: Final = 64
"""Frames between two savings of an evaluator's state, at least."""
STATE_SHARE: Final = 0.25
"""Of what is written, that states may be: windows of many layers are larger than their frames."""
STATE_AT_MOST_FRAMES: Final = 512
"""Frames that a restart judges again, silently, at most."""


@dataclass(frozen=True, slots=True)
class StreamKey:
    attempt: int
    rank: int


class FrameQueue:
    """Hands frames out in the order of their sequence numbers, none twice."""

    def __init__(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self.newest_seq = next_seq - 1
        """The highest known to be on disk."""
        self._held: dict[int, CommittedFrame] = {}

    @property
    def is_behind(self) -> bool:
        return self.newest_seq >= self.next_seq

    @property
    def num_waiting(self) -> int:
        """Frames that are, or may be, on disk and are not judged."""
        return max(self.newest_seq - self.next_seq + 1, 0)

    def note(self, newest_seq: int) -> None:
        """Frames up to this one are, or may be, on disk."""
        self.newest_seq = max(self.newest_seq, newest_seq)

    def put(self, frame: CommittedFrame) -> None:
        self.note(frame.seq)
        if frame.seq >= self.next_seq and len(self._held) < MAX_HELD:
            self._held[frame.seq] = frame

    def take(self, most: int) -> list[CommittedFrame]:
        """The frames that are next, as far as they are held without a gap; stay until `done`."""
        taken: list[CommittedFrame] = []
        while len(taken) < most and self.next_seq + len(taken) in self._held:
            taken.append(self._held[self.next_seq + len(taken)])
        return taken

    def done(self, last_seq: int) -> None:
        """All up to this one is behind us."""
        self.next_seq = last_seq + 1
        self._held = {seq: frame for seq, frame in self._held.items() if seq > last_seq}


@dataclass(slots=True)
class Stream:
    """A stream that is being judged."""

    evaluation: Evaluation
    """As it is on disk."""
    is_stored: bool
    judge: Judge
    queue: FrameQueue
    project: str
    has_begun: bool = False
    """Whether a live frame of it was judged in this life of the service."""
    is_explained: bool = True
    """Whether an alert of it waits, explained, for the end of another rank's; to be asked first."""
    gap_since: float | None = None
    """When a missing frame was first waited for, on the monotonic clock; None: none is."""
    unsaved_bytes: int = 0
    """Of the frames judged since the state was saved."""

    @property
    def state_is_due(self) -> bool:
        """Once the frames judged so far are to be saved."""
        num_frames = self.queue.next_seq - 1 - self.evaluation.state_seq
        if num_frames < STATE_EVERY_FRAMES:
            return False
        is_cheap = len(self.evaluation.state) <= STATE_SHARE * self.unsaved_bytes
        return is_cheap or num_frames >= STATE_AT_MOST_FRAMES

    @property
    def key(self) -> StreamKey:
        return StreamKey(self.evaluation.attempt, self.evaluation.rank)

    def gap_left_s(self, now: float) -> float | None:
        """Seconds until a missing frame is passed over; None where none is waited for."""
        return None if self.gap_since is None else self.gap_since + GAP_TIMEOUT_S - now

    def in_line(self, frames: list[CommittedFrame], now: float) -> list[CommittedFrame]:
        """Of frames in order, those up to the first that is missing; past it once it was waited
        for. None at all: what the queue knew of was removed by retention before it was judged."""
        first_seq = self.queue.next_seq
        if not frames:
            self.queue.done(self.queue.newest_seq)
            return []
        if frames[0].seq > first_seq:
            self.gap_since = now if self.gap_since is None else self.gap_since
            if now - self.gap_since < GAP_TIMEOUT_S:
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
        # Late frames command nothing; they must not silence the live ones behind them.
        return list(takewhile(lambda frame: frame.late == in_line[0].late, in_line))
