"""How alerts end: recovered only where the run is back within what it was before the onset."""

import asyncio
import math
from dataclasses import replace

from tests.server.alerts.bench import Bench, StartService, healthy
from tests.server.alerts.test_incidents import use

from runwatch.alerts import AlertState
from runwatch.commands import CommandState
from runwatch_server.alerts.records import AlertRecord, Recovery, Resolution

ROSE: dict[str, object] = {
    "alert": "Rose",
    "when": "robust_z(loss, 32) > 10",
    "severity": "critical",
    "keep_firing_for": {"steps": 8},
}


async def judged(bench: Bench, rule: str, losses: list[float]) -> list[AlertRecord]:
    """The alerts of a rule after these losses, which begin with step 0."""
    await bench.open()
    await bench.send(losses, first_step=0)
    await bench.settle()
    return [one for one in await bench.alerts() if one.rule == rule]


def test_a_window_that_slid_past_the_fault_is_no_recovery(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, ROSE)
            high = [5.0 * loss for loss in healthy(80)]
            (alert,) = await judged(bench, "Rose", [*healthy(64), *high])

            assert alert.resolution is Resolution.SETTLED_WORSE
            assert alert.facts.outcome == "loss settled at 10.1, five times its level before"
            card = await bench.alerting.alerts.card(alert)
            assert card.events[-1].detail["reason"] == "settled_worse"

    asyncio.run(scenario())


def test_a_loss_that_is_back_has_recovered(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, ROSE)
            (alert,) = await judged(bench, "Rose", [*healthy(64), 11.0, 12.0, *healthy(60)])

            assert (alert.resolution, alert.facts.outcome) == (Resolution.RECOVERED, "")

    asyncio.run(scenario())


def test_a_nan_that_ended_has_recovered_unless_the_loss_stayed_up(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            losses = [*healthy(40), math.nan, *healthy(60), math.nan]
            high = [1.14 * loss for loss in healthy(60)]
            first, second = await judged(bench, "NonFinite", [*losses, *high])

            assert first.resolution is Resolution.RECOVERED
            assert second.resolution is Resolution.SETTLED_WORSE
            assert second.facts.outcome == "loss settled at 2.3, against 2.02 before"

    asyncio.run(scenario())


def test_a_layer_is_measured_against_its_own_past(start_service: StartService) -> None:
    rule: dict[str, object] = {
        "alert": "Broken",
        "scope": "layer",
        "when": "nonfinite > 3 * max(nonfinite, 16)",
    }

    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, rule)
            await bench.open()
            await bench.send(healthy(20), first_step=0, nonfinite=(1.0, 2.0))
            await bench.send(healthy(4), first_step=20, nonfinite=(1.0, 8.0))
            await bench.settle()

            (alert,) = [one for one in await bench.alerts() if one.rule == "Broken"]
            assert alert.facts.worst_layer == "head"
            assert alert.facts.outcome == "nonfinite settled at 8, four times its level before"

    asyncio.run(scenario())


def test_an_end_with_the_run_is_neither_a_recovery_nor_worse(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, ROSE)
            await judged(bench, "Rose", [*healthy(64), 11.0])
            await bench.close()
            await bench.alerting.ticker.tick_slowly()

            (alert,) = [one for one in await bench.alerts() if one.rule == "Rose"]
            assert (alert.resolution, alert.facts.outcome) == (Resolution.RUN_ENDED, "")

    asyncio.run(scenario())


async def roll_back(bench: Bench, *, to_step: int) -> AlertRecord:
    """A NaN at step 100, and the trainer's answer to the rollback that it caused."""
    (alert,) = await judged(bench, "NonFinite", [*healthy(100), math.nan])
    (command,) = await bench.commands()
    await bench.answer(
        command.id, CommandState.APPLIED, step=101, detail={"to_step": to_step, "segment": 1}
    )
    return alert


async def train_again(bench: Bench, losses: list[float], *, from_step: int) -> list[AlertRecord]:
    await bench.send(losses, first_step=from_step, segment=1)
    await bench.settle()
    return [one for one in await bench.alerts() if one.rule == "NonFinite"]


def test_a_rollback_whose_nan_came_back_is_a_failed_cure(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            before = await roll_back(bench, to_step=89)
            (alert,) = await train_again(bench, [*healthy(10), math.nan], from_step=90)

            assert alert.id == before.id
            assert (alert.state, alert.recovery) == (AlertState.FIRING, Recovery.NOT_RECOVERED)

    asyncio.run(scenario())


def test_a_nan_that_comes_back_when_the_alert_is_over_fails_the_cure_too(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await roll_back(bench, to_step=49)
            (cured,) = await train_again(bench, healthy(50), from_step=50)
            assert (cured.resolution, cured.recovery) == (
                Resolution.RECOVERED,
                Recovery.RECOVERED,
            )

            first, second = await train_again(bench, [math.nan], from_step=100)
            assert first == replace(cured, recovery=Recovery.NOT_RECOVERED)
            assert second.state is AlertState.FIRING

    asyncio.run(scenario())
