"""Relates alerts of the same rule on several ranks. A NaN or infinity on one rank reaches the
others with the next all-reduce of gradients. Their alerts are kept but count as explained by the
first, so that people are not notified once per rank.

For use inside the transaction that records the alerts.
"""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.alerts import AlertState
from runwatch.rules import IN_CODE_NAMES, Transition
from runwatch.vocabulary import RunId
from runwatch_server.alerts import queries
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.commands.changes import is_undone
from runwatch_server.commands.queries import list_commands


async def seen_beside_other_ranks(
    connection: AsyncConnection,
    run_id: RunId,
    rank: int,
    before: AlertRecord | None,
    transition: Transition,
) -> Transition:
    """A rank's transition, marked as explained if people were notified of another rank's alert. An
    alert that turns out to have begun earlier is sent all the same, as it names another rank and
    step."""
    if transition.rule not in IN_CODE_NAMES:
        return transition
    if before is not None and before.firing_step is not None:
        is_explained = before.inhibited_by == transition.rule
    else:
        told = await queries.list_notifiable_of_other_ranks(connection, run_id, rank, transition)
        step, segment = transition.onset_step, transition.segment
        is_explained = any(_stood_at(other, step, segment) for other in told)
    return replace(transition, inhibited_by=transition.rule) if is_explained else transition


async def list_to_release(
    connection: AsyncConnection, run_id: RunId, attempt: int, rank: int, *, segment: int, step: int
) -> tuple[list[AlertRecord], bool]:
    """The rank's alerts that outlast the alert that explained them, as judged up to this step of
    this segment; and whether any others are still explained. Each rank is judged at its own pace:
    an end at a later step decides nothing yet, and steps that a rollback undid release nothing."""
    explained = await queries.list_explained_by_ranks(connection, run_id, attempt, rank)
    if not explained or is_undone(await list_commands(connection, run_id), attempt, segment):
        return [], bool(explained)
    released: list[AlertRecord] = []
    for alert in explained:
        if alert.state is AlertState.FIRING:
            told = await queries.list_notifiable_of_other_ranks(connection, run_id, rank, alert)
            if not any(_stood_at(other, step, alert.segment) for other in told):
                released.append(alert)
    return released, len(explained) > len(released)


def _stood_at(other: AlertRecord, step: int, segment: int) -> bool:
    if other.state.is_open or other.resolved_step is None:
        return True
    return other.segment == segment and other.resolved_step >= step
