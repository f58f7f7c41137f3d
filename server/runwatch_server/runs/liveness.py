"""Who was heard of when, on the monotonic clock; kept in memory, never stored.

After a restart of the service nothing is known but that it has just begun to listen, so ages count
from then and no run looks lost for the service's own absence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.messages import Heartbeat
from runwatch.vocabulary import RunId
from runwatch_server.runs.heard_rank import HeardRank, RankFacts, Sign

BEAT_S: Final = 1.0
"""From one beat of the pause watch to the next."""
_DELAY_S: Final = 5.0
"""By so much a beat may be late; beyond, it was no delay but a pause."""


@dataclass(frozen=True, slots=True)
class _LiveAttempt:
    """The attempt of a run that is listened to, with the ranks that are expected to speak."""

    attempt: int
    ranks: dict[int, HeardRank]


class Liveness:
    """The facts that rules of absence and run states are judged by."""

    def __init__(self) -> None:
        self._runs: dict[RunId, _LiveAttempt] = {}
        self._heard: dict[tuple[RunId, int, int], Sign | None] = {}
        """Of which the other replicas have not been told; None: as it is known by then."""
        self._beat_at: float | None = None
        """When the pause watch last said that the service listens; None: it has not begun."""

    def open_attempt(self, run_id: RunId, attempt: int, *, now: float) -> None:
        """Begins to listen for rank 0 of an attempt; older attempts are forgotten."""
        live = self._runs.get(run_id)
        if live is None or live.attempt < attempt:
            first = HeardRank(since=now, last_contact=now)
            self._runs[run_id] = _LiveAttempt(attempt, {0: first})

    def forget(self, run_id: RunId) -> None:
        """The run has ended, or was removed: nothing more is expected of it."""
        self._runs.pop(run_id, None)
        for key in [key for key in self._heard if key[0] == run_id]:
            del self._heard[key]

    def forget_rank(self, run_id: RunId, attempt: int, rank: int) -> None:
        """A rank has left in order: nothing more is expected of it."""
        live = self._runs.get(run_id)
        known = None if live is None or live.attempt != attempt else live.ranks.pop(rank, None)
        if known is not None:
            self._heard[run_id, attempt, rank] = known.sign(
                run_id, attempt, rank, now=known.last_contact, has_left=True
            )

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
        if known is not None:
            self._heard[run_id, attempt, rank] = None
            known.note_frame(last_step, times, now)

    def note_heartbeat(self, run_id: RunId, heartbeat: Heartbeat, *, now: float) -> None:
        known = self._rank(run_id, heartbeat.attempt, heartbeat.rank, now)
        if known is not None:
            self._heard[run_id, heartbeat.attempt, heartbeat.rank] = None
            known.note_heartbeat(heartbeat, now)

    def take_signs(self, *, now: float) -> list[Sign]:
        """What was heard here since the last time, to be told to the other replicas."""
        heard, self._heard = self._heard, {}
        signs: list[Sign] = []
        for (run_id, attempt, rank), sign in heard.items():
            live = self._runs.get(run_id)
            if sign is not None:
                signs.append(sign)
            elif live is not None and live.attempt == attempt and rank in live.ranks:
                signs.append(live.ranks[rank].sign(run_id, attempt, rank, now=now))
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
            ranks = self._runs[sign.run_id].ranks
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

    def beat(self, *, now: float) -> float:
        """The service listens: to be said every second by who does nothing else. Returns for how
        long it did not, since the last time: nobody was silent in that time."""
        last, self._beat_at = self._beat_at, now
        pause_s = 0.0 if last is None else now - last - BEAT_S
        if pause_s <= _DELAY_S:
            return 0.0
        for live in self._runs.values():
            for known in live.ranks.values():
                known.postpone(pause_s, now=now)
        return pause_s

    def facts(self, run_id: RunId, *, now: float) -> tuple[RankFacts, ...]:
        """The ranks of the run's current attempt; empty where nothing is expected of it. No age in
        them grows by a pause of the service that no beat has told of yet."""
        live = self._runs.get(run_id)
        if live is None:
            return ()
        if self._beat_at is not None:
            now = min(now, self._beat_at + BEAT_S + _DELAY_S)
        ranks = sorted(live.ranks.items())
        return tuple(known.facts(live.attempt, rank, now) for rank, known in ranks)

    def lr_scale(self, run_id: RunId) -> float:
        """In force in the run's first rank, as far as it has said."""
        live = self._runs.get(run_id)
        return live.ranks[min(live.ranks)].lr_scale if live is not None and live.ranks else 1.0

    def run_ids(self) -> tuple[RunId, ...]:
        """The runs that are expected to speak."""
        return tuple(self._runs)

    def _rank(self, run_id: RunId, attempt: int, rank: int, now: float) -> HeardRank | None:
        """None where a newer attempt is listened to."""
        self.open_attempt(run_id, attempt, now=now)
        live = self._runs[run_id]
        if attempt < live.attempt:
            return None
        return live.ranks.setdefault(rank, HeardRank(since=now, last_contact=now))
