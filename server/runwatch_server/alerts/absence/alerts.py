"""Alerts about the silence of runs, which no frame brings.

`absence` decides them, from what liveness knows; this module keeps them and reports changes.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState, Change, Reason
from runwatch.rules import IN_CODE_NAMES, Rule
from runwatch.vocabulary import RunId
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.absence.phase_history import PhaseHistory
from runwatch_server.alerts.absence.rules import (
    OF_CONTACT,
    AbsenceAlert,
    absence_alert_of,
    explained_by,
    judge_silence,
    rank_lost,
    rules_of_absence,
    run_lost,
    silent_s,
    transition_of,
)
from runwatch_server.alerts.absence.standing import NOWHERE, Standing, standing_of
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.evaluation.consequences import Consequences
from runwatch_server.alerts.recording.transitions import News, record
from runwatch_server.alerts.records import Resolution
from runwatch_server.commands.queries import find_addressee
from runwatch_server.rules.own_names import GROUP_OUTLIER, OUTLAST_RUNS, RANK_LOST, RUN_LOST
from runwatch_server.runs.rank_activity import RankFacts
from runwatch_server.telemetry.host_queries import find_hosts

_OF_NO_SILENCE: Final = IN_CODE_NAMES | OUTLAST_RUNS | {GROUP_OUTLIER}
"""The service's own rules that are judged elsewhere; like RunLost they have no hash."""


class _Key(NamedTuple):
    """The rank that is silent and the rule that judges it."""

    run_id: RunId
    attempt: int
    rank: int
    rule: str


class _Verdict(NamedTuple):
    """What a look at one rank by one rule brought."""

    rule: Rule
    change: Change
    facts: RankFacts
    team: Sequence[RankFacts]
    """All ranks of the run, this one among them."""


class AbsenceAlerts:
    """The open alerts about silence of the runs that this replica judges."""

    def __init__(self, context: AlertingContext, *, lost_s: float) -> None:
        self._context = context
        self._lost_s = lost_s
        self._run_lost = run_lost(lost_s)
        self._rank_lost = rank_lost(lost_s)
        self._alerts: dict[RunId, dict[_Key, AbsenceAlert]] = {}
        """Grouped by run: each run is looked at every second, and thousands may be lost at once."""
        self._last_steps: dict[RunId, tuple[int, int | None]] = {}
        """The attempt of which no step has been heard, and the run's last step according to the
        database. Asked once, when the run is taken up or an attempt begins, since later steps are
        heard of as they come."""
        self._projects: dict[RunId, str] = {}
        """Projects of the runs whose open alerts are loaded here."""
        self._phases = PhaseHistory()

    @property
    def runs(self) -> AbstractSet[RunId]:
        """The runs whose open alerts are loaded here."""
        return self._projects.keys()

    def drop(self, run_id: RunId) -> None:
        """Forget what is known of a run, because another replica may judge it meanwhile."""
        self._projects.pop(run_id, None)
        self._phases.drop(run_id)
        self._alerts.pop(run_id, None)
        self._last_steps.pop(run_id, None)

    async def judge(self, run_id: RunId) -> None:
        """Look at each rank that is expected to send. Called every second, so it queries the
        database only if something has changed: neither while the run makes steps nor while it stays
        lost. Raises NotOwnerError."""
        project = await self._recall(run_id)
        if project is None:
            return
        now = self._context.clock.monotonic()
        facts = self._context.liveness.facts(run_id, now=now)
        if not facts:
            return
        facts = await self._with_last_step(run_id, facts)
        rules = (await self._context.rules.in_force(project)).rules
        for rank in facts:
            await self._forget_older(run_id, rank)
            of_absence = rules_of_absence(rules, rank.rank)
            await self._forget_orphans(run_id, rank, of_absence)
            longest_phase_s = await self._longest_phase_s(run_id, rank)
            for rule in (*self._rules_of_contact(rank, facts), *of_absence):
                key = _Key(run_id, rank.attempt, rank.rank, rule.name)
                change = judge_silence(
                    rule,
                    rank,
                    facts,
                    self._known(key),
                    lost_s=self._lost_s,
                    now=self._context.clock.wall(),
                    longest_phase_s=longest_phase_s,
                )
                if change is not None:
                    await self._follow(key, _Verdict(rule, change, rank, facts))

    def _alerts_of(self, run_id: RunId) -> dict[_Key, AbsenceAlert]:
        return self._alerts.setdefault(run_id, {})

    def _known(self, key: _Key) -> AbsenceAlert | None:
        return self._alerts_of(key.run_id).get(key)

    async def _follow(self, key: _Key, verdict: _Verdict) -> None:
        """Report what changed about an alert: its state, or that another alert explains it."""
        change = verdict.change
        known, why = self._known(key), explained_by(verdict.rule, self._firing_beside(key))
        if change.is_news:
            await self._record(key, verdict, inhibited_by=why)
        elif known is not None and change.alert is not None and why != known.inhibited_by:
            reason = Reason.RELEASED if why is None else Reason.INHIBITED
            folded = replace(change, reason=reason)
            await self._record(key, verdict._replace(change=folded), inhibited_by=why)
        elif known is not None and change.alert is not None:
            self._alerts_of(key.run_id)[key] = replace(known, alert=change.alert)

    def _firing_beside(self, key: _Key) -> set[str]:
        """The absence rules that fire about the same rank."""
        return {
            other.rule
            for other, open_alert in self._alerts_of(key.run_id).items()
            if other._replace(rule=key.rule) == key
            and open_alert.alert.state is AlertState.FIRING
            and not open_alert.shadow
        }

    def _rules_of_contact(self, rank: RankFacts, team: Sequence[RankFacts]) -> list[Rule]:
        """RunLost for the run's first rank, so that it is judged once; RankLost for a rank beside
        others."""
        of_run = [self._run_lost] if rank is team[0] else []
        return [*of_run, self._rank_lost] if len(team) > 1 else of_run

    async def _record(self, key: _Key, verdict: _Verdict, *, inhibited_by: str | None) -> None:
        run_id, attempt, rank, _ = key
        rule, change, facts, team = verdict
        consequences = Consequences(run_id, self._context)
        lr_scale, known = consequences.lr_scale, self._known(key)

        async def work(connection: AsyncConnection) -> tuple[list[News], AbsenceAlert | None, bool]:
            await self._context.ownership.check(connection, run_id)
            addressee = await find_addressee(connection, run_id)
            if addressee is None:
                return [], None, False
            if known is None and (stored := (await _stored(connection, run_id)).get(key)):
                # Opened by a write that was committed, but whose answer was lost.
                return [], stored, False
            num_before = await queries.count_episodes(connection, run_id, rule.name, attempt)
            standing = await self._find_standing(connection, run_id, verdict)
            transition, open_alert = transition_of(
                rule,
                change,
                facts,
                known,
                silence_s=silent_s(rule, facts, team),
                num_before=num_before,
                inhibited_by=inhibited_by,
                standing=standing,
            )
            source = self._context.source(
                run_id, addressee.project, rank=rank, rule_hashes={rule.name: ""}
            )
            ordered = False
            news: list[News] = []
            async for one in record(
                connection, source, [transition], now=self._context.clock.wall()
            ):
                news.append(one)
                if one.acts and rule.actions:
                    ordered |= await consequences.act(connection, one, lr_scale)
            return news, open_alert, ordered

        news, open_alert, ordered = await self._context.database.write(work, of=run_id)
        if open_alert is None:
            self._alerts_of(run_id).pop(key, None)
        else:
            self._alerts_of(run_id)[key] = open_alert
        if ordered:
            await self._context.delivery.refresh(run_id)
        self._context.on_news(news)

    async def _find_standing(
        self, connection: AsyncConnection, run_id: RunId, verdict: _Verdict
    ) -> Standing:
        """Where the ranks stand when an alert fires that steps are missing, by what they told; they
        stand still, so it is still true."""
        if verdict.rule.name in OF_CONTACT or not _fires(verdict.change):
            return NOWHERE
        team = verdict.team
        attempt = team[0].attempt
        first_step = min((rank.last_step or 0 for rank in team), default=0)
        told = await event_queries.list_stalls(connection, run_id, attempt, first_step=first_step)
        hosts = await find_hosts(connection, run_id, attempt)
        return standing_of(told, team, hosts)

    async def _forget_older(self, run_id: RunId, rank: RankFacts) -> None:
        """End the alerts about the silence of older attempts."""
        older = [
            key
            for key in self._alerts_of(run_id)
            if key.rank == rank.rank and key.attempt < rank.attempt
        ]
        await self._end(run_id, older, Resolution.ATTEMPT_ENDED, "a newer attempt began")

    async def _forget_orphans(
        self, run_id: RunId, rank: RankFacts, of_absence: Sequence[Rule]
    ) -> None:
        """End the alerts of rules that are no longer in force: nothing judges them any more."""
        kept = {RUN_LOST, RANK_LOST, *(rule.name for rule in of_absence)}
        orphans = [
            key
            for key in self._alerts_of(run_id)
            if (key.attempt, key.rank) == (rank.attempt, rank.rank) and key.rule not in kept
        ]
        await self._end(run_id, orphans, Resolution.RULE_CHANGED, "the rule was changed or removed")

    async def _end(
        self, run_id: RunId, keys: Sequence[_Key], resolution: Resolution, why: str
    ) -> None:
        if not keys:
            return

        async def work(connection: AsyncConnection) -> list[News]:
            await self._context.ownership.check(connection, run_id)
            ending = [
                alert
                for alert in await queries.list_open(connection, run_id)
                if not alert.rule_hash
                and _Key(run_id, alert.attempt, alert.rank, alert.rule) in keys
            ]
            return await self._context.end_alerts(connection, ending, resolution, why)

        news = await self._context.database.write(work, of=run_id)
        for key in keys:
            del self._alerts_of(run_id)[key]
        self._context.on_news(news)

    async def _recall(self, run_id: RunId) -> str | None:
        """Load the open alerts about silence from before a restart, or from the replica that judged
        the run until now. Returns the run's project, or None if there is no such run."""
        if run_id in self._projects:
            return self._projects[run_id]
        async with self._context.database.read() as connection:
            addressee = await find_addressee(connection, run_id)
            if addressee is None:
                return None
            self._alerts_of(run_id).update(await _stored(connection, run_id))
        self._projects[run_id] = addressee.project
        self._last_steps[run_id] = (addressee.attempt, addressee.last_step)
        return addressee.project

    async def _longest_phase_s(self, run_id: RunId, rank: RankFacts) -> float | None:
        """The longest duration so far of the rank's phase. Phases are those of the run, reported by
        rank 0."""
        if rank.rank == 0 and not self._phases.known(run_id, rank):
            async with self._context.database.read() as connection:
                await self._phases.learn(connection, run_id, rank)
        return self._phases.longest_s(run_id, rank)

    async def _with_last_step(
        self, run_id: RunId, facts: tuple[RankFacts, ...]
    ) -> tuple[RankFacts, ...]:
        """The facts, with the run's last step filled in for rank 0 if none was heard of: after a
        restart of the service, or in an attempt that has made none."""
        first = facts[0]
        if first.rank != 0 or first.last_step is not None:
            self._last_steps.pop(run_id, None)
            return facts
        attempt, last_step = self._last_steps.get(run_id, (None, None))
        if attempt != first.attempt:
            async with self._context.database.read() as connection:
                addressee = await find_addressee(connection, run_id)
            last_step = None if addressee is None else addressee.last_step
            self._last_steps[run_id] = (first.attempt, last_step)
        return replace(first, last_step=last_step), *facts[1:]


async def _stored(connection: AsyncConnection, run_id: RunId) -> dict[_Key, AbsenceAlert]:
    """The open alerts about silence of a run, from the database."""
    found: dict[_Key, AbsenceAlert] = {}
    for alert in await queries.list_open(connection, run_id):
        if not alert.rule_hash and alert.rule not in _OF_NO_SILENCE:
            entered = await event_queries.last_event(connection, alert, kind=alert.state)
            since = alert.onset_at if entered is None else entered.at
            key = _Key(run_id, alert.attempt, alert.rank, alert.rule)
            found[key] = absence_alert_of(alert, since=since)
    return found


def _fires(change: Change) -> bool:
    return change.alert is not None and change.alert.state is AlertState.FIRING
