"""When each rank was last heard from, on the monotonic clock; in memory, never stored.

After a restart of the service, ages count from the moment it began to listen, so that no run looks
lost because of the service's own absence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.messages import Heartbeat
from runwatch.vocabulary import RunId
from runwatch_server.runs.rank_activity import LifeSign, RankActivity, RankFacts

BEAT_S: Final = 1.0
"""Seconds from one beat of the pause watch to the next."""
_DELAY_S: Final = 5.0
"""How late, in seconds, a beat may be before the delay counts as a pause of the service."""


@dataclass(frozen=True, slots=True)
class _LiveAttempt:
    """The attempt of a run that we listen to, with the ranks that are expected to send."""

    attempt: int
    ranks: dict[int, RankActivity]


class Liveness:
    """The facts by which absence rules and run states are judged."""

    def __init__(self) -> None:
        self._runs: dict[RunId, _LiveAttempt] = {}
        self._heard: dict[tuple[RunId, int, int], LifeSign | None] = {}
        """What the other replicas have yet to be told; None: whatever is known by then."""
        self._beat_at: float | None = None
        """When the pause watch last beat; None: it has not begun."""

    def open_attempt(self, run_id: RunId, attempt: int, *, now: float) -> None:
        """Begins to listen for rank 0 of an attempt; older attempts are forgotten."""
        live = self._runs.get(run_id)
        if live is None or live.attempt < attempt:
            first = RankActivity(since=now, last_contact=now)
            self._runs[run_id] = _LiveAttempt(attempt, {0: first})

    def forget(self, run_id: RunId) -> None:
        """Stops expecting anything from a run that has ended or was removed."""
        self._runs.pop(run_id, None)
        for key in [key for key in self._heard if key[0] == run_id]:
            del self._heard[key]

    def forget_rank(self, run_id: RunId, attempt: int, rank: int) -> None:
        """Stops expecting anything from a rank that has left in order."""
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
        """Notes a live frame; the pace is learned from the `times` of its steps."""
        known = self._rank(run_id, attempt, rank, now)
        if known is not None:
            self._heard[run_id, attempt, rank] = None
            known.note_frame(last_step, times, now)

    def note_heartbeat(self, run_id: RunId, heartbeat: Heartbeat, *, now: float) -> None:
        known = self._rank(run_id, heartbeat.attempt, heartbeat.rank, now)
        if known is not None:
            self._heard[run_id, heartbeat.attempt, heartbeat.rank] = None
            known.note_heartbeat(heartbeat, now)

    def take_signs(self, *, now: float) -> list[LifeSign]:
        """What was heard here since the last call, for the other replicas."""
        heard, self._heard = self._heard, {}
        signs: list[LifeSign] = []
        for (run_id, attempt, rank), sign in heard.items():
            live = self._runs.get(run_id)
            if sign is not None:
                signs.append(sign)
            elif live is not None and live.attempt == attempt and rank in live.ranks:
                signs.append(live.ranks[rank].sign(run_id, attempt, rank, now=now))
        return signs

    def keep_signs(self, signs: Sequence[LifeSign]) -> None:
        """Takes back signs that could not be sent; the next call gives them, or newer ones."""
        for sign in signs:
            key = (sign.run_id, sign.attempt, sign.rank)
            self._heard.setdefault(key, sign if sign.has_left else None)

    def note_sign(self, sign: LifeSign, *, now: float) -> None:
        """Notes what another replica heard from a rank; ignored for a run that has ended here."""
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
        """Listens to the open runs' current attempts, and forgets runs that have ended, perhaps by
        another replica. `known_before` are the runs known when the database was queried."""
        for run_id in set(known_before) - open_runs.keys():
            self.forget(run_id)
        for run_id, attempt in open_runs.items():
            self.open_attempt(run_id, attempt, now=now)

    def beat(self, *, now: float) -> float:
        """Notes that the service listens; to be called every second by a loop that does only that.

        Returns the length in seconds of a pause of the service since the last call, or 0: no rank
        counts as silent in that time.
        """
        last, self._beat_at = self._beat_at, now
        pause_s = 0.0 if last is None else now - last - BEAT_S
        if pause_s <= _DELAY_S:
            return 0.0
        for live in self._runs.values():
            for known in live.ranks.values():
                known.postpone(pause_s, now=now)
        return pause_s

    def facts(self, run_id: RunId, *, now: float) -> tuple[RankFacts, ...]:
        """The ranks of the run's current attempt; empty if nothing is expected from it.

        Ages do not include a pause of the service which the next beat has yet to notice.
        """
        live = self._runs.get(run_id)
        if live is None:
            return ()
        if self._beat_at is not None:
            now = min(now, self._beat_at + BEAT_S + _DELAY_S)
        ranks = sorted(live.ranks.items())
        return tuple(known.facts(live.attempt, rank, now) for rank, known in ranks)

    def lr_scale(self, run_id: RunId) -> float:
        """The scale in force in the run's first rank, as far as it has reported one."""
        live = self._runs.get(run_id)
        return live.ranks[min(live.ranks)].lr_scale if live is not None and live.ranks else 1.0

    def run_ids(self) -> tuple[RunId, ...]:
        """The runs that are expected to send."""
        return tuple(self._runs)

    def _rank(self, run_id: RunId, attempt: int, rank: int, now: float) -> RankActivity | None:
        """None if we listen to a newer attempt."""
        self.open_attempt(run_id, attempt, now=now)
        live = self._runs[run_id]
        if attempt < live.attempt:
            return None
        return live.ranks.setdefault(rank, RankActivity(since=now, last_contact=now))
