"""Assembles judging and acting from what the service has already opened."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from runwatch.vocabulary import RunId
from runwatch_server.alerts.announcements import Announcer
from runwatch_server.alerts.context import AlertingContext
from runwatch_server.alerts.diagnosis.findings import SignFinder
from runwatch_server.alerts.evaluation.evaluators import Evaluators
from runwatch_server.alerts.judging import Judging, ProcessJudging, ThreadJudging
from runwatch_server.alerts.recording.outcomes import Outcomes
from runwatch_server.alerts.recording.transitions import Notify, notify_nobody
from runwatch_server.alerts.recording.withdrawing import Withdrawing
from runwatch_server.alerts.service import Alerts
from runwatch_server.alerts.ticker import Ticker
from runwatch_server.commands.delivery import Delivery
from runwatch_server.commands.ids import OrderedIds
from runwatch_server.commands.service import Commands
from runwatch_server.foundation import Foundation
from runwatch_server.replicas.broadcasts import Broadcasts, Topic
from runwatch_server.rules.service import Rules
from runwatch_server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerting:
    """The parts that judge and act, made by `start_alerting`."""

    context: AlertingContext
    rules: Rules
    commands: Commands
    delivery: Delivery
    alerts: Alerts
    evaluators: Evaluators
    ticker: Ticker
    announcer: Announcer
    sign_finder: SignFinder


async def start_alerting(
    stack: AsyncExitStack,
    foundation: Foundation,
    *,
    notify: Notify = notify_nobody,
    page: Notify = notify_nobody,
) -> Alerting:
    """Start judging; the stack stops it, which must happen before the database closes. The ticker
    is only created: its `run` belongs in a background task."""
    settings, clock, database = foundation.settings, foundation.clock, foundation.database
    signer, broadcasts = foundation.signer, foundation.broadcasts
    sign_finder = SignFinder(database, foundation.reader)
    announcer = Announcer(announce=lambda: broadcasts.send(Topic.NEWS))
    rules = Rules(database, clock)
    rules.on_change(lambda: broadcasts.send(Topic.RULES))
    ids = OrderedIds(clock)
    delivery = Delivery(
        database,
        clock,
        signer=signer,
        on_change=announcer.wake,
        announce=lambda run_id: broadcasts.send(Topic.COMMANDS, run_id),
    )
    commands = Commands(database, clock, ids, signer=signer, delivery=delivery)
    judging = _make_judging(settings)
    stack.push_async_callback(judging.close)
    context = AlertingContext(
        database=database,
        clock=clock,
        ids=ids,
        signer=signer,
        rules=rules,
        commands=commands,
        delivery=delivery,
        liveness=foundation.liveness,
        events=foundation.events,
        packs=foundation.packs,
        frame_budget=foundation.frame_budget,
        layouts=foundation.layouts,
        outcomes=Outcomes(database, foundation.layouts, foundation.reader),
        ownership=foundation.ownership,
        default_policy=settings.policy,
        limits=settings.policy_limits,
        judging=judging,
        on_news=announcer.post,
        notify=Withdrawing(clock, signer, notify).notify,
        page=page,
    )
    evaluators = Evaluators(context, most_bytes=settings.states_mib << 20)
    ticker = Ticker(context, evaluators, foundation.reader, lost_s=settings.lost_s)
    foundation.removals.on(delivery.forget, evaluators.begin_again, ticker.drop)
    await delivery.start()
    stack.push_async_callback(delivery.stop)
    await commands.log_foreign_keys()
    _listen(broadcasts, rules, delivery, evaluators, announcer)
    await evaluators.start()
    stack.push_async_callback(evaluators.stop)
    return Alerting(
        context=context,
        rules=rules,
        commands=commands,
        delivery=delivery,
        alerts=Alerts(database, clock, announcer, sign_finder),
        sign_finder=sign_finder,
        evaluators=evaluators,
        ticker=ticker,
        announcer=announcer,
    )


def _make_judging(settings: Settings) -> Judging:
    num_processes = settings.judge_processes
    return ProcessJudging(num_processes) if num_processes else ThreadJudging()


def _listen(
    broadcasts: Broadcasts,
    rules: Rules,
    delivery: Delivery,
    evaluators: Evaluators,
    announcer: Announcer,
) -> None:
    """Look again when another replica has changed something."""

    async def refresh_rules(_: frozenset[RunId] | None) -> None:
        rules.invalidate()

    async def look_for_frames(run_ids: frozenset[RunId] | None) -> None:
        if run_ids is None:  # asked every two seconds
            await evaluators.catch_up_with_going_on()
        else:
            await evaluators.catch_up(run_ids)

    async def wake_readers(_: frozenset[RunId] | None) -> None:
        announcer.wake_here()

    broadcasts.on(Topic.RULES, refresh_rules)
    broadcasts.on(Topic.COMMANDS, delivery.post_changed)
    broadcasts.on(Topic.FRAMES, look_for_frames)
    broadcasts.on(Topic.NEWS, wake_readers)


class EvaluationOwner:
    """Takes over the runs that this replica becomes responsible for, and lets go of the others."""

    def __init__(self, evaluators: Evaluators, ticker: Ticker) -> None:
        self._evaluators = evaluators
        self._ticker = ticker

    async def gained(self, run_id: RunId) -> None:
        await self._evaluators.catch_up((run_id,))

    def lost(self, run_id: RunId) -> None:
        self._evaluators.drop(run_id)
        self._ticker.drop(run_id)

    async def can_release(self, run_id: RunId) -> bool:
        if not self._evaluators.is_drained(run_id):
            return False
        await self._evaluators.forget(run_id)
        return self._evaluators.is_drained(run_id)  # false if it has sent something meanwhile
