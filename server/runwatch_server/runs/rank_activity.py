"""What the service has heard from one rank of a run.

From it come the facts that the rank is judged by, and the sign of life that replicas share. Times
are on the monotonic clock of this service and ages count from arrival here: a trainer's wall clock
decides nothing.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from runwatch.messages import Heartbeat
from runwatch.vocabulary import Phase, RunId

_STEP_TIMES: Final = 128
"""The learned step time is the median over this many frames."""
_FRAMES_TO_KNOW: Final = 16
"""Frames after which a run's pace is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """The state of one rank of a run's current attempt at one moment."""

    attempt: int
    rank: int
    contact_age_s: float
    """Seconds since its last message, or since we began to listen."""
    step_age_s: float
    """Seconds since its last step, or since we began to listen."""
    has_spoken: bool
    """A message came since we began to listen."""
    has_stepped: bool
    """A step came since we began to listen."""
    last_step: int | None
    """None: no step is known of since we began to listen."""
    phase: Phase
    step_time_s: float | None
    """Median seconds per step, learned from its frames; None before the second one."""
    longest_pause_s: float | None = None
    """Longest time between two steps that no phase explains; None while too little is known."""
    lr_scale: float
    dropped_rows: int
    spooled_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSign:
    """The newest facts that one replica heard from a rank, for the others."""

    run_id: RunId
    attempt: int
    rank: int
    contact_age_s: float
    step_age_s: float | None
    last_step: int | None
    phase: Phase
    step_time_s: float | None
    lr_scale: float
    dropped_rows: int
    spooled_frames: int
    has_left: bool = False


@dataclass(slots=True)
class RankActivity:
    """Everything that was heard from one rank of an attempt."""

    since: float
    """When we began to listen to it."""
    last_contact: float
    has_spoken: bool = False
    has_stepped: bool = False
    last_step_at: float | None = None
    last_step: int | None = None
    phase: Phase = Phase.INIT
    lr_scale: float = 1.0
    dropped_rows: int = 0
    spooled_frames: int = 0
    step_times: deque[float] = field(default_factory=lambda: deque(maxlen=_STEP_TIMES))
    num_frames: int = 0
    newest_time: float | None = None
    """Time of the newest step, by the trainer's clock."""
    longest_pause_s: float = 0.0
    is_explained: bool = False
    """Whether a phase since the last frame explains why no step came."""

    def note_frame(self, last_step: int, times: Sequence[float], now: float) -> None:
        """Notes a live frame; `times` are those of its steps, by the trainer's clock."""
        self.last_contact, self.has_spoken = now, True
        if times:
            self._note_steps(times, now)
            self.has_stepped = True
            self.last_step_at = now
            self.last_step = last_step
            self.phase = Phase.TRAIN

    def note_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        self.last_contact, self.has_spoken = now, True
        self.phase = heartbeat.phase
        self.is_explained |= heartbeat.phase is not Phase.TRAIN
        self.lr_scale = heartbeat.lr_scale
        self.dropped_rows = heartbeat.dropped_rows
        self.spooled_frames = heartbeat.spooled_frames
        if heartbeat.last_step is not None and heartbeat.step_age_s >= 0:
            told_at = now - heartbeat.step_age_s
            stepped_at = max(told_at, self.since)
            self.last_step = heartbeat.last_step
            self.has_stepped |= told_at > self.since
            self.last_step_at = max(stepped_at, self.last_step_at or stepped_at)

    def _note_steps(self, times: Sequence[float], now: float) -> None:
        """Learns the pace from the times of steps that arrive now.

        A pause counts only if both clocks show it: spooled frames arrive late, and a trainer's
        clock may be set.
        """
        if self.newest_time is not None and self.last_step_at is not None:
            pause_s = min(times[0] - self.newest_time, now - self.last_step_at)
            if not self.is_explained:
                self.longest_pause_s = max(self.longest_pause_s, pause_s)
        if len(times) > 1 and times[-1] >= times[0]:
            self.step_times.append((times[-1] - times[0]) / (len(times) - 1))
        self.num_frames += 1
        self.newest_time, self.is_explained = times[-1], False

    def take_over(self, sign: LifeSign, now: float) -> None:
        """Takes over what another replica has heard, which is newer."""
        self.last_contact = now - sign.contact_age_s
        self.has_spoken = True
        self.phase = sign.phase
        self.lr_scale = sign.lr_scale
        self.dropped_rows = sign.dropped_rows
        self.spooled_frames = sign.spooled_frames
        if sign.last_step is not None and sign.step_age_s is not None:
            self.last_step = sign.last_step
            self.has_stepped |= now - sign.step_age_s > self.since
            self.last_step_at = max(now - sign.step_age_s, self.since)
        if sign.step_time_s is not None:
            self.step_times.append(sign.step_time_s)

    def postpone(self, pause_s: float, *, now: float) -> None:
        """Moves all times by a pause of the service, in which the rank was not silent.

        What was heard after the pause, but before it was recognized, is moved to now at most.
        """
        self.since = min(self.since + pause_s, now)
        self.last_contact = min(self.last_contact + pause_s, now)
        if self.last_step_at is not None:
            self.last_step_at = min(self.last_step_at + pause_s, now)

    def facts(self, attempt: int, rank: int, now: float) -> RankFacts:
        stepped_at = self.since if self.last_step_at is None else self.last_step_at
        return RankFacts(
            attempt=attempt,
            rank=rank,
            contact_age_s=max(now - self.last_contact, 0.0),
            step_age_s=max(now - stepped_at, 0.0),
            has_spoken=self.has_spoken,
            has_stepped=self.has_stepped,
            last_step=self.last_step,
            phase=self.phase,
            step_time_s=self._step_time_s,
            longest_pause_s=self.longest_pause_s if self.num_frames >= _FRAMES_TO_KNOW else None,
            lr_scale=self.lr_scale,
            dropped_rows=self.dropped_rows,
            spooled_frames=self.spooled_frames,
        )

    def sign(
        self, run_id: RunId, attempt: int, rank: int, *, now: float, has_left: bool = False
    ) -> LifeSign:
        stepped_at = self.last_step_at
        return LifeSign(
            run_id=run_id,
            attempt=attempt,
            rank=rank,
            contact_age_s=max(now - self.last_contact, 0.0),
            step_age_s=None if stepped_at is None else max(now - stepped_at, 0.0),
            last_step=self.last_step,
            phase=self.phase,
            step_time_s=self._step_time_s,
            lr_scale=self.lr_scale,
            dropped_rows=self.dropped_rows,
            spooled_frames=self.spooled_frames,
            has_left=has_left,
        )

    @property
    def _step_time_s(self) -> float | None:
        return statistics.median(self.step_times) if self.step_times else None
