"""What happens by the clock and not by a frame: silence judged, commands expired, ends noted.

A plain loop on the monotonic clock. A tick that comes late judges nothing: the service itself was
paused, which the run watcher adds to every deadline before the next one.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState, Change, Reason
from runwatch.rules import Rule
from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.absence import (
    Silence,
    explained_by,
    judge_silence,
    rank_lost,
    rules_of_absence,
    run_lost,
    silence_of,
    silent_s,
    transition_of,
)
from runwatch_server.alerts.consequences import Consequences
from runwatch_server.alerts.evaluators import Evaluators
from runwatch_server.alerts.recording import News, Source, end_alerts, record
from runwatch_server.alerts.records import Resolution
from runwatch_server.alerts.workshop import Workshop
from runwatch_server.commands.queries import find_addressee
from runwatch_server.commands.records import Addressee
from runwatch_server.replicas.ownership import NotOwnerError
from runwatch_server.runs.liveness import RankFacts

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
_LATE_S: Final = 2.0
_SLOW_TICKS: Final = 5
"""Expiry and ends are looked at in every fifth tick."""

_Key = tuple[RunId, int, int, str]
"""Run, attempt, rank, rule."""


class Ticker:
    """A background task: `run` until cancelled."""

    def __init__(self, workshop: Workshop, evaluators: Evaluators, *, lost_s: float) -> None:
        self._shop = workshop
        self._evaluators = evaluators
        self._lost_s = lost_s
        self._run_lost = run_lost(lost_s)
        self._rank_lost = rank_lost(lost_s)
        self._silences: dict[_Key, Silence] = {}
        self._recalled: set[RunId] = set()
        """Runs whose open alerts about silence are in `_silences`."""
        self._last_tick = workshop.clock.monotonic()
        self.open_alerts: dict[tuple[str, str], int] = {}
        """Number for each state and severity, as of the last slow tick."""

    @property
    def age_s(self) -> float:
        """Seconds since the last tick that did its work."""
        return self._shop.clock.monotonic() - self._last_tick

    async def run(self) -> None:
        count = 0
        last = self._shop.clock.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._shop.clock.monotonic()
            late_s, last = now - last - TICK_S, now
            count += 1
            try:
                if late_s <= _LATE_S:
                    await self.tick()
                if count % _SLOW_TICKS == 0:
                    await self.tick_slowly()
            except Exception:  # a failed tick must not be the last one
                log.exception("a tick of the absence rules failed; the next one tries again")
            else:
                self._last_tick = self._shop.clock.monotonic()

    async def tick(self) -> None:
        """Judge the silence of every rank that is expected to speak."""
        ours = [id_ for id_ in self._shop.liveness.run_ids() if self._shop.ownership.owns(id_)]
        for run_id in self._recalled - set(ours):
            self.drop(run_id)
        for run_id in ours:
            try:
                await self._recall(run_id)
                await self._tick_run(run_id)
            except NotOwnerError as error:
                log.info("%s", error)
                self.drop(run_id)

    def drop(self, run_id: RunId) -> None:
        """Forget what is known of a run's silence: another replica may judge it meanwhile."""
        self._recalled.discard(run_id)
        for key in [key for key in self._silences if key[0] == run_id]:
            del self._silences[key]

    async def tick_slowly(self) -> None:
        """Expire commands, resolve what a run's end leaves open, look for frames left behind."""
        await self._shop.commands.expire_due()
        async with self._shop.database.read() as connection:
            run_ids = await queries.list_runs_with_open_alerts(connection)
            addressees = [await find_addressee(connection, run_id) for run_id in run_ids]
            self.open_alerts = await queries.count_by_state(connection)
        for addressee in addressees:
            if addressee is not None and self._is_ours_to_end(addressee):
                await self._end_run(addressee)
        await self._evaluators.catch_up()
        await self._evaluators.drop_idle()

    def _is_ours_to_end(self, addressee: Addressee) -> bool:
        return (
            addressee.state.is_ended
            and self._shop.ownership.owns(addressee.run_id)
            and self._evaluators.is_drained(addressee.run_id)
        )

    async def _tick_run(self, run_id: RunId) -> None:
        now = self._shop.clock.monotonic()
        facts = self._shop.liveness.facts(run_id, now=now)
        if not facts:
            return
        project = await self._project(run_id)
        if project is None:
            return
        rules = (await self._shop.rules.in_force(project)).rules
        for rank in facts:
            await self._forget_older(run_id, rank)
            for rule in (*self._rules_of_contact(rank, facts), *rules_of_absence(rules, rank.rank)):
                key = (run_id, rank.attempt, rank.rank, rule.name)
                change = judge_silence(
                    rule,
                    rank,
                    facts,
                    self._silences.get(key),
                    lost_s=self._lost_s,
                    now=self._shop.clock.wall(),
                )
                if change is not None:
                    await self._follow(key, rule, change, rank, silent_s(rule, rank, facts))

    async def _follow(
        self, key: _Key, rule: Rule, change: Change, facts: RankFacts, silence_s: float
    ) -> None:
        """Tell what is news of an alert: its state, or that another explains it."""
        known, why = self._silences.get(key), explained_by(rule, self._firing_beside(key))
        if change.is_news:
            await self._tell(key, rule, change, facts, silence_s, inhibited_by=why)
        elif known is not None and change.alert is not None and why != known.inhibited_by:
            reason = Reason.RELEASED if why is None else Reason.INHIBITED
            folded = replace(change, reason=reason)
            await self._tell(key, rule, folded, facts, silence_s, inhibited_by=why)
        elif known is not None and change.alert is not None:
            self._silences[key] = replace(known, alert=change.alert)

    def _firing_beside(self, key: _Key) -> set[str]:
        """The rules of silence that fire about the same rank."""
        return {
            rule
            for (*whose, rule), silence in self._silences.items()
            if tuple(whose) == key[:3] and silence.alert.state is AlertState.FIRING
        }

    def _rules_of_contact(self, rank: RankFacts, team: Sequence[RankFacts]) -> list[Rule]:
        """The run's silence is judged once, with its first rank; that of a rank beside others."""
        of_run = [self._run_lost] if rank is team[0] else []
        return [*of_run, self._rank_lost] if len(team) > 1 else of_run

    async def _tell(
        self,
        key: _Key,
        rule: Rule,
        change: Change,
        facts: RankFacts,
        silence_s: float,
        *,
        inhibited_by: str | None,
    ) -> None:
        run_id, attempt, rank, _ = key
        consequences = Consequences(run_id, self._shop)
        lr_scale, known = consequences.lr_scale, self._silences.get(key)

        async def work(connection: AsyncConnection) -> tuple[list[News], Silence | None, bool]:
            await self._shop.ownership.check(connection, run_id)
            addressee = await find_addressee(connection, run_id)
            if addressee is None:
                return [], None, False
            num_before = await queries.count_episodes(connection, run_id, rule.name, attempt)
            transition, silence = transition_of(
                rule,
                change,
                facts,
                known,
                silence_s=silence_s,
                num_before=num_before,
                inhibited_by=inhibited_by,
            )
            source = Source(
                run_id=run_id,
                project=addressee.project,
                rank=rank,
                live=True,
                rule_hashes={rule.name: ""},
                new_id=self._shop.ids.new,
                tell=self._shop.tell,
            )
            ordered = False
            news: list[News] = []
            async for one in record(connection, source, [transition], now=self._shop.clock.wall()):
                news.append(one)
                if one.acts and rule.actions:
                    ordered |= await consequences.act(connection, one, lr_scale)
            return news, silence, ordered

        news, silence, ordered = await self._shop.database.write(work, of=run_id)
        if silence is None:
            self._silences.pop(key, None)
        else:
            self._silences[key] = silence
        if ordered:
            await self._shop.commands.refresh(run_id)
        self._shop.on_news(news)

    async def _forget_older(self, run_id: RunId, rank: RankFacts) -> None:
        """Alerts about the silence of an attempt that a newer one has replaced."""
        for key in [
            key
            for key in self._silences
            if key[0] == run_id and key[2] == rank.rank and key[1] < rank.attempt
        ]:
            del self._silences[key]

            async def work(connection: AsyncConnection, key: _Key = key) -> None:
                await self._shop.ownership.check(connection, run_id)
                older = [
                    alert
                    for alert in await queries.list_open(connection, run_id)
                    if (alert.attempt, alert.rank, alert.rule) == key[1:]
                ]
                at = self._shop.clock.wall()
                why = "a newer attempt began"
                await end_alerts(
                    connection,
                    older,
                    resolution=Resolution.ATTEMPT_ENDED,
                    why=why,
                    at=at,
                    tell=self._shop.tell,
                )

            await self._shop.database.write(work, of=run_id)

    async def _end_run(self, addressee: Addressee) -> None:
        async def work(connection: AsyncConnection) -> None:
            left = await queries.list_open(connection, addressee.run_id)
            at = self._shop.clock.wall()
            why = f"the run is {addressee.state}"
            await end_alerts(
                connection,
                left,
                resolution=Resolution.RUN_ENDED,
                why=why,
                at=at,
                tell=self._shop.tell,
                last_step=addressee.last_step,
            )

        await self._shop.database.write(work, of=addressee.run_id)

    async def _recall(self, run_id: RunId) -> None:
        """Take up the open alerts about silence that were told before a restart, or by the
        replica that judged the run until now."""
        if run_id in self._recalled:
            return
        async with self._shop.database.read() as connection:
            for alert in await queries.list_open(connection, run_id):
                if not alert.rule_hash:
                    key = (run_id, alert.attempt, alert.rank, alert.rule)
                    self._silences[key] = silence_of(alert)
        self._recalled.add(run_id)

    async def _project(self, run_id: RunId) -> str | None:
        async with self._shop.database.read() as connection:
            addressee = await find_addressee(connection, run_id)
        return None if addressee is None else addressee.project
