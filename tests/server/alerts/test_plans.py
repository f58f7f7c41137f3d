"""Lists of alerts are read in their order from an index, however many others there are."""

from dataclasses import replace
from functools import partial

import pytest
from tests.server.plans import plan_of

from runwatch.alerts import AlertState
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
    ],
)
async def test_a_list_is_read_in_its_order(
    database: Database, wanted: AlertFilter, plan: str
) -> None:
    found = await plan_of(database, partial(list_alerts, wanted=wanted, limit=10))

    assert found == [f"SEARCH alerts USING INDEX {plan}"]


@pytest.mark.parametrize("states", [OPEN_STATES, (AlertState.FIRING,)])
@pytest.mark.parametrize("of", [AlertFilter(projects=("pretrain",)), AlertFilter(rule="NonFinite")])
async def test_the_few_that_are_open_are_found_by_their_state(
    database: Database, states: tuple[AlertState, ...], of: AlertFilter
) -> None:
    wanted = replace(of, states=states)

    found = await plan_of(database, partial(list_alerts, wanted=wanted, limit=10))

    assert found[0] == "SEARCH alerts USING INDEX ix_alerts_state (state=?)"
