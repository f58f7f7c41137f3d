"""What the loops ask each second is answered by an index, however many alerts people heard of."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.plans import plan_of

from runwatch.vocabulary import AlertId
from runwatch_server.db import Database
from runwatch_server.notify import notice_queries, queries, settling_queries
from runwatch_server.per_run_tasks import PerRunTasks

pytestmark = pytest.mark.anyio

TASKS = PerRunTasks("a test")
IDS = [AlertId("A"), AlertId("B")]


@pytest.mark.parametrize(
    "ask",
    [
        partial(notice_queries.find_cases, tasks=TASKS, alert_ids=IDS),
        partial(notice_queries.list_standing, tasks=TASKS, since=1.0, also=IDS),
        partial(queries.count_open, receiver="team", dedup_key="A"),
        partial(queries.list_due, receiver="team", now=1.0, horizon_s=60.0, limit=200),
        partial(queries.prune, before=1.0),
        partial(settling_queries.list_settled, before=1.0),
    ],
    ids=lambda ask: ask.func.__name__,
)
async def test_no_table_is_read_whole(
    database: Database, ask: Callable[[AsyncConnection], Awaitable[object]]
) -> None:
    plan = await plan_of(database, ask)

    assert [step for step in plan if step.startswith("SCAN")] == []


async def test_what_is_due_and_an_incident_are_not_sought_in_all_that_was_delivered(
    database: Database,
) -> None:
    """A receiver's index, read without a state or a key, holds all it was ever told."""
    due = partial(queries.list_due, receiver="team", now=1.0, horizon_s=60.0, limit=200)
    incident = partial(queries.count_open, receiver="team", dedup_key="A")

    plans = [*await plan_of(database, due), *await plan_of(database, incident)]

    assert [step for step in plans if step.endswith("(receiver=?)")] == []
    assert "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)" in plans
