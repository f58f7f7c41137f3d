"""Writes transitions as alerts, with the events of their history.

For use inside one transaction. Judging the same frames again changes nothing: an episode is one
alert, and a state that the alert already had is not reported again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState, Reason
from runwatch.commands import AnyAction
from runwatch.ladders import Rung
from runwatch.rules import IN_CODE, IN_CODE_NAMES, Transition
from runwatch.vocabulary import AlertId, RunId
from runwatch_server.alerts import event_queries, queries
from runwatch_server.alerts.actions.recovery import (
    RECOVERY_STEPS,
    WORSE_STEPS,
    has_come_to,
    recovery_at,
)
from runwatch_server.alerts.actions.rungs import WAITS
from runwatch_server.alerts.recording.advancing import WITHOUT_CHANGE_OF_STATE, advance, is_news
from runwatch_server.alerts.recording.other_ranks import list_to_release, seen_beside_other_ranks
from runwatch_server.alerts.records import AlertRecord, Facts, Recovery, Resolution

ENDED: Final = "ended"
"""The attempt, the run or the rule has ended, and the alert with it."""

Notify = Callable[[AsyncConnection, AlertRecord], Awaitable[None]]
"""Records, in the same transaction, that people are to be notified of an alert that fires or is
resolved. The implementation decides whether, and of which alerts."""


async def notify_nobody(_: AsyncConnection, __: AlertRecord) -> None:
    """Notify nobody, for a service that only judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where transitions come from."""

    run_id: RunId
    project: str
    rank: int
    live: bool
    rule_hashes: Mapping[str, str]
    new_id: Callable[[], str]
    notify: Notify
    segment: int = 0
    """The segment in which the steps of the transitions were trained."""


@dataclass(frozen=True, slots=True)
class News:
    """An alert that entered a state of which people are notified."""

    alert: AlertRecord
    step: int
    actions: Sequence[AnyAction]
    """The actions of the rule."""
    ladder: Sequence[Rung]
    _: KW_ONLY
    before: AlertState | None
    """The alert's state before: the same where it became worse or was explained; None if it is
    new."""
    acts: bool
    """Whether people are notified for the first time, so that the rule's actions are considered."""
    cure_failed: bool = False
    """Whether this is the verdict that its command did not help; later news of the alert is
    not."""


async def record(
    connection: AsyncConnection, source: Source, transitions: Sequence[Transition], *, now: float
) -> AsyncIterator[News]:
    """Write the changes of transitions one after another, and yield each that is news. At that
    moment the database holds the alerts as they were when this one changed: alerts that are pending
    beside it may be cleared by the very next transition."""
    episodes = {transition.episode for transition in transitions}
    known = await queries.find_episodes(connection, source.run_id, episodes)
    for judged in transitions:
        before = known.get(judged.episode)
        transition = await seen_beside_other_ranks(
            connection, source.run_id, source.rank, before, judged
        )
        after = await _record_one(connection, source, before, transition, now)
        if after is None:
            known.pop(transition.episode, None)
        elif after is not before:
            known[transition.episode] = after
            yield News(
                after,
                transition.step,
                transition.actions,
                transition.ladder,
                before=None if before is None else before.state,
                acts=_becomes_notifiable(before, after),
                cure_failed=_is_bad_verdict(before, after),
            )


async def release(
    connection: AsyncConnection,
    source: Source,
    attempt: int,
    *,
    segment: int,
    step: int,
    now: float,
) -> tuple[list[News], bool]:
    """Report alerts that other ranks' alerts explained once those are over and these are not.
    Returns their news, and whether others are still explained."""
    found, is_any_left = await list_to_release(
        connection, source.run_id, attempt, source.rank, segment=segment, step=step
    )
    news: list[News] = []
    for alert in found:
        after = replace(alert, inhibited_by=None, last_step=step)
        await queries.update_alert(connection, after)
        await event_queries.append_event(
            connection,
            after,
            Reason.RELEASED,
            at=now,
            step=step,
            detail={"reason": Reason.RELEASED, "value": after.facts.value},
        )
        if not after.shadow:
            await source.notify(connection, after)
        rule = next(rule for rule in IN_CODE if rule.name == after.rule)
        news.append(
            News(
                after,
                step,
                rule.actions,
                rule.ladder,
                before=alert.state,
                acts=after.is_notifiable,
            )
        )
    return news, is_any_left


async def end_alerts(
    connection: AsyncConnection,
    alerts: Sequence[AlertRecord],
    *,
    resolution: Resolution,
    why: str,
    at: float,
    notify: Notify,
    last_step: int | None = None,
) -> list[News]:
    """Resolve alerts that nothing else will ever resolve, because what they watched is over.
    Returns their news.

    `last_step` is the last step of what they watched, up to which they held; without it, the last
    step at which each alert changed is taken.
    """
    news: list[News] = []
    for alert in alerts:
        if alert.state is AlertState.PENDING:
            await queries.delete_alert(connection, alert)
            continue
        step = alert.last_step if last_step is None else max(alert.last_step, last_step)
        after = replace(
            alert,
            state=AlertState.RESOLVED,
            resolved_step=step,
            resolved_at=at,
            resolution=resolution,
            recovery=None if alert.recovery is Recovery.WATCHED else alert.recovery,
        )
        await queries.update_alert(connection, after)
        await event_queries.append_event(
            connection,
            after,
            AlertState.RESOLVED,
            at=at,
            actor="service",
            step=step,
            detail={"reason": ENDED, "why": why, "resolution": resolution},
        )
        await notify(connection, after)
        news.append(News(after, step, (), (), before=alert.state, acts=False))
    return news


async def watch_recovery(
    connection: AsyncConnection,
    run_id: RunId,
    attempt: int,
    segment: int,
    last_step: int,
    *,
    at: float,
) -> list[AlertRecord]:
    """Decide for each alert that waits for a verdict on recovery whether the run recovered. Returns
    those that no longer wait for it."""
    in_trouble: list[AlertRecord] = []
    for alert in await queries.list_watched(connection, run_id):
        if alert.attempt != attempt:
            continue
        recovery = recovery_at(alert, segment, last_step)
        after = replace(alert, recovery=recovery)
        if recovery is not None and recovery is not alert.recovery:
            await queries.update_alert(connection, after)
            if not (recovery.is_bad and await _waits_for_its_rung(connection, alert)):
                await event_queries.append_event(connection, alert, recovery, at=at, step=last_step)
        if recovery is not None and recovery.is_bad:
            in_trouble.append(after)
    return in_trouble


async def _waits_for_its_rung(connection: AsyncConnection, alert: AlertRecord) -> bool:
    """Whether the alert waits only to look at its rung again, since no command was applied that
    could have helped."""
    last = await event_queries.last_event(connection, alert)
    return last is not None and last.kind == WAITS


async def _record_one(
    connection: AsyncConnection,
    source: Source,
    before: AlertRecord | None,
    transition: Transition,
    now: float,
) -> AlertRecord | None:
    """The alert after a transition; None if there is none, or none any more."""
    if transition.state is AlertState.INACTIVE:
        if before is not None and before.state is AlertState.PENDING:
            await queries.delete_alert(connection, before)
            return None
        return before
    if before is None:
        if transition.state not in (AlertState.PENDING, AlertState.FIRING):
            return None
        after = advance(_opened(source, transition, now), transition)
        await queries.insert_alert(connection, after)
    elif not is_news(before, transition):
        return before
    else:
        after = _with_verdict(source, before, advance(before, transition), transition)
        await queries.update_alert(connection, after)
    await event_queries.append_event(
        connection,
        after,
        _event_kind(transition),
        at=transition.at,
        step=transition.step,
        detail=_event_detail(after, transition),
    )
    await _record_verdicts(connection, source, before, after, now)
    if after.state in (AlertState.FIRING, AlertState.RESOLVED) and not after.shadow:
        await source.notify(connection, after)
    return after


def _becomes_notifiable(before: AlertRecord | None, after: AlertRecord) -> bool:
    was_notifiable = before is not None and before.firing_step is not None and before.is_notifiable
    return after.state is AlertState.FIRING and after.is_notifiable and not was_notifiable


def _is_bad_verdict(before: AlertRecord | None, after: AlertRecord) -> bool:
    is_new = before is None or before.recovery is not after.recovery
    return is_new and after.recovery is not None and after.recovery.is_bad


def _event_kind(transition: Transition) -> str:
    if transition.reason in WITHOUT_CHANGE_OF_STATE:
        return transition.reason
    return transition.state


def _event_detail(after: AlertRecord, transition: Transition) -> dict[str, object]:
    detail: dict[str, object] = {"reason": transition.reason, "value": after.facts.value}
    return detail | ({"inhibited_by": after.inhibited_by} if after.inhibited_by else {})


def _opened(source: Source, transition: Transition, now: float) -> AlertRecord:
    return AlertRecord(
        run_id=source.run_id,
        id=AlertId(source.new_id()),
        project=source.project,
        episode=transition.episode,
        rule=transition.rule,
        rule_hash=source.rule_hashes.get(transition.rule, ""),
        severity=transition.severity,
        labels=dict(transition.labels),
        state=transition.state,
        live=source.live,
        attempt=transition.attempt,
        segment=transition.segment,
        rank=source.rank,
        onset_step=transition.onset_step,
        onset_at=transition.onset_at,
        last_step=transition.step,
        facts=Facts(),
        created_at=now,
        shadow=transition.shadow,
    )


def _with_verdict(
    source: Source, before: AlertRecord, after: AlertRecord, transition: Transition
) -> AlertRecord:
    """The alert with its verdict: one that got much worse after its command, or whose NaN came
    back, need not be watched any longer."""
    if before.recovery is not Recovery.WATCHED:
        return after
    is_worse = transition.reason is Reason.WORSENED
    if is_worse and has_come_to(before, source.segment, transition.step - WORSE_STEPS):
        return replace(after, recovery=Recovery.WORSE)
    is_back = transition.reason is Reason.RELAPSED and transition.rule in IN_CODE_NAMES
    if is_back and has_come_to(before, source.segment, transition.step):
        return replace(after, recovery=Recovery.NOT_RECOVERED)
    return after


async def _record_verdicts(
    connection: AsyncConnection,
    source: Source,
    before: AlertRecord | None,
    alert: AlertRecord,
    now: float,
) -> None:
    """Record that a cure did not help: that of this alert, or that of an earlier one, which was
    over, if the NaN that it was to cure has come back as this alert."""
    if alert.recovery is not None and _is_bad_verdict(before, alert):
        await event_queries.append_event(
            connection, alert, alert.recovery, at=now, step=alert.last_step
        )
    is_new = alert.state is AlertState.FIRING and (before is None or before.firing_step is None)
    if not is_new or alert.rule not in IN_CODE_NAMES:
        return
    for cured in await queries.list_cured(connection, alert):
        begins = max(cured.onset_step, cured.acted_step or 0)
        is_soon = alert.onset_step < begins + RECOVERY_STEPS
        if is_soon and has_come_to(cured, source.segment, alert.onset_step):
            failed = replace(cured, recovery=Recovery.NOT_RECOVERED)
            await queries.update_alert(connection, failed)
            await event_queries.append_event(
                connection, failed, Recovery.NOT_RECOVERED, at=now, step=alert.onset_step
            )
