"""Who was heard of when, on the monotonic clock; kept in memory, never stored.

The ages are those of arrival here: a trainer's wall clock decides nothing. After a restart of the
service nothing is known but that it has just begun to listen, so `since` counts from then and no
run looks lost for the service's own absence.
"""

import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from runwatch.vocabulary import Phase, RunId

_STEP_TIMES: Final = 128
"""Frames that the learned step time is the median of."""
_FRAMES_TO_KNOW: Final = 16
"""Frames after which a run's pace is known."""


@dataclass(slots=True)
class _Rank:
    since: float
    """When we began to listen for it."""
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
    """Of a step, by the trainer's clock."""
    longest_pause_s: float = 0.0
    is_explained: bool = False
    """Whether a phase since the last frame tells why no step came."""

    def note_steps(self, times: Sequence[float], now: float) -> None:
        """Learn the pace from the times of steps that arrive now. A pause is what both clocks
        say: what was spooled arrives late, and a trainer's clock may be set."""
        if self.newest_time is not None and self.last_step_at is not None:
            pause_s = min(times[0] - self.newest_time, now - self.last_step_at)
            if not self.is_explained:
                self.longest_pause_s = max(self.longest_pause_s, pause_s)
        if len(times) > 1 and times[-1] >= times[0]:
            self.step_times.append((times[-1] - times[0]) / (len(times) - 1))
        self.num_frames += 1
        self.newest_time, self.is_explained = times[-1], False

    def take_over(self, sign: "Sign", now: float) -> None:
        """What another replica heard, which is newer."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank of a run's current attempt, as of a moment."""

    attempt: int
    rank: int
    contact_age_s: float
    """Since its last word, or since we began to listen."""
    step_age_s: float
    """Since its last step, or since we began to listen."""
    has_spoken: bool
    """A word came since we began to listen."""
    has_stepped: bool
    """A step was made since we began to listen."""
    last_step: int | None
    """None: no step was heard of since we began to listen."""
    phase: Phase
    step_time_s: float | None
    """Median seconds a step, learned from its frames; None before the first two."""
    longest_pause_s: float | None = None
    """The longest between two steps that no phase explains; None while too little was heard."""
    lr_scale: float
    dropped_rows: int
    spooled_frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The newest that one replica heard of a rank, for the others."""

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


class Liveness:
    """The facts that rules of absence and run states are judged by."""

    def __init__(self) -> None:
        self._runs: dict[RunId, tuple[int, dict[int, _Rank]]] = {}
        self._heard: dict[tuple[RunId, int, int], Sign | None] = {}
        """Of which the other replicas have not been told; None: as it is known by then."""

    def open_attempt(self, run_id: RunId, attempt: int, *, now: float) -> None:
        """Begins to listen for rank 0 of an attempt; older attempts are forgotten."""
        if self._attempt(run_id) < attempt:
            self._runs[run_id] = (attempt, {0: _Rank(since=now, last_contact=now)})

    def forget(self, run_id: RunId) -> None:
        """The run has ended: nothing more is expected of it."""
        self._runs.pop(run_id, None)

    def forget_rank(self, run_id: RunId, attempt: int, rank: int) -> None:
        """A rank has left in order: nothing more is expected of it."""
        current, ranks = self._runs.get(run_id, (0, {}))
        known = ranks.pop(rank, None) if current == attempt else None
        if known is not None:
            self._heard[run_id, attempt, rank] = _sign(run_id, attempt, rank, known, has_left=True)

    def note_frame(
        self,
        run_id: RunId,
        attempt: int,
        rank: int,
        *,
        last_step: int,
        times: list[float],
        now: float,
    ) -> None:
        """A live frame arrived; `times` are those of its steps, whose differences are learned."""
        known = self._rank(run_id, attempt, rank, now)
        if known is None:
            return
        self._heard[run_id, attempt, rank] = None
        known.last_contact, known.has_spoken = now, True
        if times:
            known.note_steps(times, now)
            known.has_stepped = True
            known.last_step_at = now
            known.last_step = last_step
            known.phase = Phase.TRAIN

    def note_heartbeat(
        self,
        run_id: RunId,
        attempt: int,
        rank: int,
        *,
        last_step: int | None,
        step_age_s: float,
        phase: Phase,
        lr_scale: float,
        dropped_rows: int,
        spooled_frames: int,
        now: float,
    ) -> None:
        known = self._rank(run_id, attempt, rank, now)
        if known is None:
            return
        self._heard[run_id, attempt, rank] = None
        known.last_contact, known.has_spoken = now, True
        known.phase = phase
        known.is_explained |= phase is not Phase.TRAIN
        known.lr_scale = lr_scale
        known.dropped_rows = dropped_rows
        known.spooled_frames = spooled_frames
        if last_step is not None and step_age_s >= 0:
            stepped_at = max(now - step_age_s, known.since)
            known.last_step = last_step
            known.has_stepped |= now - step_age_s > known.since
            known.last_step_at = max(stepped_at, known.last_step_at or stepped_at)

    def take_signs(self, *, now: float) -> list[Sign]:
        """What was heard here since the last time, to be told to the other replicas."""
        heard, self._heard = self._heard, {}
        signs: list[Sign] = []
        for (run_id, attempt, rank), sign in heard.items():
            current, ranks = self._runs.get(run_id, (0, {}))
            if sign is not None:
                signs.append(sign)
            elif current == attempt and rank in ranks:
                signs.append(_sign(run_id, attempt, rank, ranks[rank], now=now))
        return signs

    def keep_signs(self, signs: Sequence[Sign]) -> None:
        """They could not be told: the next time they are, or what is newer then."""
        for sign in signs:
            key = (sign.run_id, sign.attempt, sign.rank)
            self._heard.setdefault(key, sign if sign.has_left else None)

    def note_sign(self, sign: Sign, *, now: float) -> None:
        """Another replica heard of a rank. Of a run that is over here, nothing is expected."""
        if sign.run_id not in self._runs:
            return
        if sign.has_left:
            _, ranks = self._runs[sign.run_id]
            known = ranks.get(sign.rank)
            if known is not None and known.last_contact <= now - sign.contact_age_s:
                del ranks[sign.rank]
            return
        known = self._rank(sign.run_id, sign.attempt, sign.rank, now)
        if known is not None and now - sign.contact_age_s > known.last_contact:
            known.take_over(sign, now)

    def follow(
        self, known_before: Collection[RunId], open_runs: Mapping[RunId, int], *, now: float
    ) -> None:
        """Listen for what is open, with its current attempt, and forget what was ended: perhaps
        by another replica. `known_before` were the runs when the database was asked."""
        for run_id in set(known_before) - open_runs.keys():
            self.forget(run_id)
        for run_id, attempt in open_runs.items():
            self.open_attempt(run_id, attempt, now=now)

    def postpone(self, pause_s: float) -> None:
        """The service itself was paused for so long: nobody was silent in that time."""
        for _, ranks in self._runs.values():
            for known in ranks.values():
                known.since += pause_s
                known.last_contact += pause_s
                if known.last_step_at is not None:
                    known.last_step_at += pause_s

    def facts(self, run_id: RunId, *, now: float) -> tuple[RankFacts, ...]:
        """The ranks of the run's current attempt; empty where nothing is expected of it."""
        attempt, ranks = self._runs.get(run_id, (0, {}))
        return tuple(_facts(attempt, rank, known, now) for rank, known in sorted(ranks.items()))

    def run_ids(self) -> tuple[RunId, ...]:
        """The runs that are expected to speak."""
        return tuple(self._runs)

    def _attempt(self, run_id: RunId) -> int:
        return self._runs.get(run_id, (0, {}))[0]

    def _rank(self, run_id: RunId, attempt: int, rank: int, now: float) -> _Rank | None:
        if attempt > self._attempt(run_id):
            self.open_attempt(run_id, attempt, now=now)
        current, ranks = self._runs[run_id]
        if attempt < current:
            return None
        return ranks.setdefault(rank, _Rank(since=now, last_contact=now))


def _facts(attempt: int, rank: int, known: _Rank, now: float) -> RankFacts:
    stepped_at = known.since if known.last_step_at is None else known.last_step_at
    return RankFacts(
        attempt=attempt,
        rank=rank,
        contact_age_s=max(now - known.last_contact, 0.0),
        step_age_s=max(now - stepped_at, 0.0),
        has_spoken=known.has_spoken,
        has_stepped=known.has_stepped,
        last_step=known.last_step,
        phase=known.phase,
        step_time_s=statistics.median(known.step_times) if known.step_times else None,
        longest_pause_s=known.longest_pause_s if known.num_frames >= _FRAMES_TO_KNOW else None,
        lr_scale=known.lr_scale,
        dropped_rows=known.dropped_rows,
        spooled_frames=known.spooled_frames,
    )


def _sign(
    run_id: RunId,
    attempt: int,
    rank: int,
    known: _Rank,
    *,
    now: float | None = None,
    has_left: bool = False,
) -> Sign:
    at = known.last_contact if now is None else now
    return Sign(
        run_id=run_id,
        attempt=attempt,
        rank=rank,
        contact_age_s=max(at - known.last_contact, 0.0),
        step_age_s=None if known.last_step_at is None else max(at - known.last_step_at, 0.0),
        last_step=known.last_step,
        phase=known.phase,
        step_time_s=statistics.median(known.step_times) if known.step_times else None,
        lr_scale=known.lr_scale,
        dropped_rows=known.dropped_rows,
        spooled_frames=known.spooled_frames,
        has_left=has_left,
    )
