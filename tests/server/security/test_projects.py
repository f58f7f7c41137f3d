"""A key that is bound to a project neither sees nor touches another, whatever route it takes.

Every route stands in the table with how it is bound; one that is added must be added here too.
"""

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from tests.server.harness import LAYOUT, Api, HandClock, frame, new_id, serve
from tests.waiting import until_so

pytestmark = pytest.mark.anyio

MARK: Final = "OfTheOtherProject"


class Bound(Enum):
    REFUSED = auto()
    """It names a thing of the other project: 403 or 404."""
    LISTED = auto()
    """It lists: nothing of the other project is in it."""
    OWN = auto()
    """Whatever it is asked for, it makes a thing of the key's own project."""
    SHARED = auto()
    """It is about no project."""
    STREAMED = auto()
    """It never ends; bound as its lists are, which its own tests show."""


@dataclass(frozen=True, slots=True)
class Case:
    bound: Bound
    body: object = None
    query: str = ""


def refused(body: object = None, query: str = "") -> Case:
    return Case(Bound.REFUSED, body, query)


LISTED: Final = Case(Bound.LISTED)
SHARED: Final = Case(Bound.SHARED)
STREAMED: Final = Case(Bound.STREAMED)
RULE: Final = {
    "version": 1,
    "groups": [{"name": "g", "rules": [{"alert": MARK, "when": "loss > 1"}]}],
}
SILENCE: Final = {
    "matchers": [{"name": "project", "value": MARK}],
    "ends_at": "{soon}",
    "comment": MARK,
}
ANY: Final = [{"name": "project", "value": "*"}]
ATTEMPT: Final = {"token": "t" * 26, "started_at": 1.0}
BEAT: Final = {
    "attempt": 1,
    "rank": 0,
    "last_step": 1,
    "step_age_s": 1.0,
    "phase": "train",
}
RECEIPT: Final = {
    "command_id": "{command_id}",
    "attempt": 1,
    "rank": 0,
    "state": "applied",
    "step": 1,
}

TABLE: Final[dict[str, Case]] = {
    "POST /api/v1/keys": refused({"name": "k", "scopes": ["read"], "project": MARK}),
    "GET /api/v1/keys": LISTED,
    "DELETE /api/v1/keys/{key_id}": refused(),
    "GET /metrics": refused(),
    "GET /prometheus/api/v1/alerts": LISTED,
    "GET /prometheus/api/v1/rules": LISTED,
    "POST /api/v1/runs": refused({"run_id": "{run_id}", "name": "n", "project": MARK}),
    "GET /api/v1/runs": LISTED,
    "GET /api/v1/runs/{run_id}": refused(),
    "PATCH /api/v1/runs/{run_id}": refused({"name": "n"}),
    "DELETE /api/v1/runs/{run_id}": refused(),
    "POST /api/v1/runs/{run_id}/attempts": refused(ATTEMPT),
    "GET /api/v1/runs/{run_id}/attempts": refused(),
    "POST /api/v1/runs/{run_id}/attempts/{attempt}/close": refused({"status": "finished"}),
    "POST /api/v1/runs/{run_id}/heartbeat": refused(BEAT),
    "PUT /api/v1/runs/{run_id}/layouts/{layout_hash}": refused(LAYOUT.to_document()),
    "POST /api/v1/runs/{run_id}/frames": refused({}),
    "GET /api/v1/runs/{run_id}/timeline": refused(),
    "GET /api/v1/runs/{run_id}/checkpoints": refused(),
    "GET /api/v1/runs/{run_id}/metrics": refused(),
    "GET /api/v1/runs/{run_id}/series": refused(query="metric=loss"),
    "GET /api/v1/runs/{run_id}/history": refused(),
    "GET /api/v1/runs/{run_id}/thresholds": refused(query="metric=loss"),
    "GET /api/v1/runs/{run_id}/histograms": refused(query="kind=weights&layer=w"),
    "GET /api/v1/runs/{run_id}/heatmap": refused(query="stat=grad_norm"),
    "GET /api/v1/runs/{run_id}/ranks": refused(query="metric=loss"),
    "GET /api/v1/runs/{run_id}/retention": refused(),
    "PATCH /api/v1/runs/{run_id}/retention": refused({"pinned": True}),
    "GET /api/v1/retention": LISTED,
    "PATCH /api/v1/retention": refused({"project": MARK, "ages": {"raw_days": 1}}),
    "GET /api/v1/retention/due": LISTED,
    "GET /api/v1/fleet": LISTED,
    "GET /api/v1/fleet/pulse": Case(Bound.LISTED, query="run_id={run_id}"),
    "GET /api/v1/rules": LISTED,
    "POST /api/v1/rules": refused(RULE, f"project={MARK}"),
    "POST /api/v1/rules/check": SHARED,
    "POST /api/v1/rules/backtest": refused({"run_id": "{run_id}"}),
    "GET /api/v1/rules/{rule_id}": refused(),
    "PUT /api/v1/rules/{rule_id}": refused(RULE),
    "DELETE /api/v1/rules/{rule_id}": refused(),
    "GET /api/v1/alerts": LISTED,
    "GET /api/v1/alerts/{alert_id}": refused(),
    "POST /api/v1/alerts/{alert_id}/ack": refused({}),
    "POST /api/v1/runs/{run_id}/commands": refused({"action": {"kind": "checkpoint"}}),
    "GET /api/v1/runs/{run_id}/commands": refused(),
    "GET /api/v1/runs/{run_id}/commands/next": refused(query="attempt=1&rank=0"),
    "GET /api/v1/commands/{command_id}": refused(),
    "POST /api/v1/commands/{command_id}/approve": refused({}),
    "POST /api/v1/commands/{command_id}/cancel": refused({}),
    "POST /api/v1/commands/{command_id}/receipt": refused(RECEIPT),
    "GET /api/v1/audit": LISTED,
    "GET /api/v1/notifications": LISTED,
    "GET /api/v1/silences": LISTED,
    "POST /api/v1/silences": Case(Bound.OWN, {**SILENCE, "comment": "all", "matchers": ANY}),
    "DELETE /api/v1/silences/{silence_id}": refused(),
    "GET /api/v1/stream": STREAMED,
    "GET /api/v1/fleet/stream": STREAMED,
    "GET /healthz": SHARED,
    "GET /readyz": SHARED,
    "GET /assets/{version}/{name:path}": SHARED,
    "GET /docs": SHARED,
    "GET /openapi.json": SHARED,
    "GET /login": SHARED,
    "POST /login": SHARED,
    "POST /logout": SHARED,
    "GET /runbooks": SHARED,
    "GET /runbooks/{name}": SHARED,
    "GET /": LISTED,
    "GET /runs": SHARED,
    "GET /runs/{run_id}": refused(),
    "GET /runs/{run_id}/fresh": refused(),
    "GET /compare": refused(query="a={run_id}&b={run_id}"),
    "GET /alerts": LISTED,
    "GET /alerts/{alert_id}": refused(),
    "GET /silences": LISTED,
    "GET /runs/{run_id}/actions": refused(),
    "GET /runs/{run_id}/act": refused(),
    "GET /runs/{run_id}/kept": refused(),
    "GET /api/v1/receivers": refused(),
    "POST /api/v1/receivers/{name}/test": refused({}),
    "POST /api/v1/demo-run": refused({}),
    "GET /welcome": SHARED,
    "GET /jobs/{job}": SHARED,
    "GET /settings": LISTED,
    "GET /settings/audit": LISTED,
    "GET /settings/due": LISTED,
    "GET /rules": LISTED,
    "GET /rules/new": SHARED,
    "GET /rules/{rule_id}": refused(),
}


def routes(api: Api) -> set[str]:
    found = [(str(one.path), one.original_route) for one in iter_route_contexts(api.app.routes)]
    return {
        f"{method} {path}"
        for path, route in found
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two projects: what one has, and a key to all of the other."""

    api: Api
    ids: dict[str, str]
    key: str

    async def ask(self, route: str, case: Case) -> tuple[int, str]:
        method, path = route.split(" ")
        path, body = f"{path}?{case.query}", msgspec.json.encode(case.body).decode()
        for name, value in self.ids.items():
            path, body = path.replace(name, value), body.replace(name, value)
        reply = await self.api.http.request(
            method,
            path,
            content=None if case.body is None else body,
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "If-Match": '"1"',
            },
        )
        return reply.status_code, reply.text


@pytest.fixture
async def neighbours(tmp_path: Path, hand_clock: HandClock) -> AsyncIterator[Neighbours]:
    """Their clock stands still: however long a test takes, the run is not lost meanwhile."""
    async with serve(tmp_path, clock=hand_clock) as api:
        run_id = new_id()
        opened = {"run_id": run_id, "name": MARK, "project": MARK}
        await api.json("POST", "/runs", json=opened)
        await api.new_attempt(run_id, allow=["checkpoint"])
        await api.post(run_id, frame(1, [1.0, math.nan]))
        await until_so(lambda: api.services.announcer.transitions.total() > 0)
        (alert, *_) = (await api.json("GET", "/alerts", params={"run_id": run_id}))["alerts"]
        order = {"action": {"kind": "checkpoint"}}
        command = await api.json("POST", f"/runs/{run_id}/commands", json=order)
        rule = await api.json("POST", "/rules", params={"project": MARK}, json=RULE)
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        theirs = await api.new_key("control", project=MARK)
        body = {**SILENCE, "ends_at": soon}
        silence = await api.json("POST", "/silences", json=body, key=theirs)
        kept = {"name": MARK, "scopes": ["read"], "project": MARK}
        key = await api.json("POST", "/keys", json=kept)
        ids = {
            "{run_id}": run_id,
            "{alert_id}": alert["id"],
            "{command_id}": command["id"],
            "{rule_id}": rule["rules"][0]["id"],
            "{silence_id}": silence["id"],
            "{key_id}": key["id"],
            "{soon}": soon,
            "{attempt}": "1",
            "{layout_hash}": LAYOUT.hash,
        }
        own = await api.new_key("admin", project="own")
        yield Neighbours(api, ids, own)


async def test_every_route_stands_in_the_table_and_no_other_does(api: Api) -> None:
    assert routes(api) == set(TABLE), "say in TABLE how a new route is bound to a key's project"


async def test_no_route_gives_away_another_project(neighbours: Neighbours) -> None:
    found: dict[str, Any] = {}
    for route, case in TABLE.items():
        if case.bound not in (Bound.SHARED, Bound.STREAMED):
            status, text = await neighbours.ask(route, case)
            if not holds(case.bound, status, text, neighbours.ids["{run_id}"]):
                found[route] = (status, text[:300])

    assert found == {}


def holds(bound: Bound, status: int, text: str, run_id: str) -> bool:
    if bound is Bound.REFUSED:
        return status in (403, 404)
    if bound is Bound.OWN:
        return status < 300 and '"project":"own"' in text
    return status < 300 and MARK not in text and run_id not in text


async def test_nothing_was_changed_by_the_neighbour(neighbours: Neighbours) -> None:
    before = await everything(neighbours)
    for route, case in TABLE.items():
        if case.bound is Bound.REFUSED:
            await neighbours.ask(route, case)

    assert await everything(neighbours) == before


async def everything(neighbours: Neighbours) -> dict[str, Any]:
    """What its own people see of the project."""
    run = f"/runs/{neighbours.ids['{run_id}']}"
    paths = (run, f"{run}/attempts", f"{run}/commands", "/rules", "/alerts")
    found = {path: await neighbours.api.json("GET", path) for path in paths}
    del found[run]["state"]  # by the clock, it goes on by itself
    keys = (await neighbours.api.json("GET", "/keys"))["keys"]
    return found | {"keys": [{**key, "last_used_at": None} for key in keys]}
