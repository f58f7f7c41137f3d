"""Lists of alerts are read in their order from an index, however many others there are."""

from dataclasses import replace
from functools import partial

import pytest
from tests.server.plans import plan_of

from runwatch.alerts import AlertState
from runwatch.vocabulary import Severity
from runwatch_server.alerts.queries import list_alerts
from runwatch_server.alerts.records import OPEN_STATES, AlertFilter
from runwatch_server.db import Database

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("wanted", "plan"),
    [
        (AlertFilter(rule="NonFinite"), "ix_alerts_rule (rule=?)"),
        (AlertFilter(projects=("pretrain",)), "ix_alerts_project (project=?)"),
        (
            AlertFilter(projects=("pretrain",), rule="NonFinite", before_id="A"),
            "ix_alerts_project (project=? AND id<?)",
        ),
        (
            AlertFilter(projects=("pretrain",), states=(AlertState.RESOLVED,)),
            "ix_alerts_project (project=?)",
        ),
        (AlertFilter(severities=(Severity.CRITICAL,)), "ix_alerts_severity (severity=?)"),
        (
            AlertFilter(states=(AlertState.RESOLVED,), severities=(Severity.CRITICAL,)),
            "ix_alerts_severity (severity=?)",
        ),
    ],
)
async def test_a_list_is_read_in_its_order(
    database: Database, wanted: AlertFilter, plan: str
) -> None:
    found = await plan_of(database, partial(list_alerts, wanted=wanted, limit=10))

    assert found == [f"SEARCH alerts USING INDEX {plan}"]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (AlertFilter(acked=True), "ix_alerts_acked"),
        (AlertFilter(acked=False), "ix_alerts_id"),
        (AlertFilter(states=(AlertState.RESOLVED,)), "ix_alerts_id"),
        (AlertFilter(severities=(Severity.CRITICAL, Severity.WARNING)), "ix_alerts_id"),
    ],
)
async def test_what_most_alerts_are_is_not_looked_up_and_sorted(
    database: Database, wanted: AlertFilter, index: str
) -> None:
    found = await plan_of(database, partial(list_alerts, wanted=wanted, limit=10))

    assert found == [f"SCAN alerts USING INDEX {index}"]


@pytest.mark.parametrize("states", [OPEN_STATES, (AlertState.FIRING,)])
@pytest.mark.parametrize(
    "of",
    [
        AlertFilter(projects=("pretrain",)),
        AlertFilter(rule="NonFinite"),
        AlertFilter(severities=(Severity.CRITICAL,)),
        AlertFilter(acked=True),
    ],
)
async def test_the_few_that_are_open_are_found_by_their_state(
    database: Database, states: tuple[AlertState, ...], of: AlertFilter
) -> None:
    wanted = replace(of, states=states)

    found = await plan_of(database, partial(list_alerts, wanted=wanted, limit=10))

    assert found[0] == "SEARCH alerts USING INDEX ix_alerts_state (state=?)"
