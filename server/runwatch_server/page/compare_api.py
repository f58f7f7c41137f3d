"""`/compare`: two runs, or attempts, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import APIRouter, Query, Request, Response

from runwatch.vocabulary import RunId
from runwatch_server.auth.guard import CurrentPrincipal, require_to_open
from runwatch_server.auth.keys import KeyScope
from runwatch_server.fleet.queries import list_fleet
from runwatch_server.fleet.records import FleetFilter, Order
from runwatch_server.page.chart_list import charts_of
from runwatch_server.page.rendering import render
from runwatch_server.runs.queries import Attempt, Run
from runwatch_server.services import CurrentServices
from runwatch_server.telemetry import queries
from runwatch_server.telemetry.history_api import read_history

router: Final = APIRouter(include_in_schema=False)

_MOST_OFFERED: Final = 500


@router.get("/compare", dependencies=[require_to_open(KeyScope.READ)])
async def compare(
    request: Request,
    services: CurrentServices,
    principal: CurrentPrincipal,
    a: Annotated[str, Query(max_length=40)] = "",
    b: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """`a` and `b` are ids of runs, or `<id>@<attempt>` for one attempt of a run."""
    sides = [
        await _side(services, principal, letter, text) for letter, text in (("a", a), ("b", b))
    ]
    found = [side for side in sides if side is not None]
    async with services.database.read() as connection:
        offered = await list_fleet(
            connection,
            FleetFilter(project=principal.project, order=Order.NEWEST),
            limit=_MOST_OFFERED,
        )
    both = len(found) == 2
    return render(
        request,
        "compare.html",
        offered=offered,
        chosen={"a": a, "b": b},
        sides=found,
        charts=charts_of(sorted({name for side in found for name in side.metrics})) if both else [],
        differences=differences(found[0].run.config, found[1].run.config) if both else [],
        told={"sides": [side.told() for side in found]},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs that are compared."""

    letter: str
    run: Run
    attempts: list[Attempt]
    attempt: int | None
    """None for the run's effective history."""
    last_step: int
    metrics: list[str]

    @property
    def name(self) -> str:
        return self.run.name if self.attempt is None else f"{self.run.name} @ {self.attempt}"

    def told(self) -> dict[str, object]:
        """The data that the page's script needs."""
        return {
            "letter": self.letter,
            "run": self.run.id,
            "name": self.name,
            "last": self.last_step,
            "attempt": self.attempt,
            "metrics": self.metrics,
        }


async def _side(
    services: CurrentServices, principal: CurrentPrincipal, letter: str, text: str
) -> Side | None:
    if not text:
        return None
    run_id, _, number = text.partition("@")
    run = await services.runs.find(RunId(run_id), principal)
    attempts = await services.runs.list_attempts(run.id)
    attempt = next((one.attempt for one in attempts if str(one.attempt) == number), None)
    history = await read_history(services, run.id, run.current_attempt)
    last_steps = [
        one.last_step
        for one in history.stretches
        if (one.in_force if attempt is None else one.attempt == attempt)
    ]
    async with services.database.read() as connection:
        metrics = await queries.list_metrics(connection, run.id)
    return Side(
        letter=letter,
        run=run,
        attempts=attempts,
        attempt=attempt,
        last_step=max(last_steps, default=0),
        metrics=metrics,
    )


def differences(
    left: Mapping[str, object], right: Mapping[str, object]
) -> list[tuple[str, str, str]]:
    """The differences of two configurations: the path of each value, and the value on each side."""
    one, other = dict(_leaves(left)), dict(_leaves(right))
    return [
        (path, one.get(path, "–"), other.get(path, "–"))
        for path in sorted(one.keys() | other.keys())
        if one.get(path) != other.get(path)
    ]


def _leaves(config: Mapping[str, object], path: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in config.items():
        place = f"{path}.{name}" if path else name
        section = _section(value)
        found += _leaves(section, place) if section else [(place, str(value))]
    return found


def _section(value: object) -> Mapping[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}
