"""One incident is one alert: what others explain is kept, and neither told nor acted upon."""

import asyncio
import math
from collections.abc import Sequence

from tests.server.alerts.bench import Bench, StartService, healthy

from runwatch.alerts import AlertState
from runwatch_server.alerts.records import AlertRecord, PeakFacts, Resolution
from runwatch_server.rules.pack import split_file


def rule_file(*rules: dict[str, object]) -> dict[str, object]:
    return {"version": 1, "groups": [{"name": "tests", "rules": list(rules)}]}


LOSS_UP: dict[str, object] = {
    "alert": "LossUp",
    "when": "loss > 5 or isnan(loss)",
    "severity": "critical",
    "inhibited_by": [{"rules": ["NonFinite"], "within": {"steps": 3}}],
    "actions": [{"checkpoint": {}}],
}


async def use(bench: Bench, *rules: dict[str, object]) -> None:
    filed = split_file(rule_file(*rules))
    await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")


async def kinds(bench: Bench, alert: AlertRecord) -> Sequence[str]:
    card = await bench.alerting.alerts.card(alert)
    return [event.kind for event in card.events if event.actor == "rules"]


async def alert_of(bench: Bench, rule: str) -> AlertRecord:
    (alert,) = [alert for alert in await bench.alerts() if alert.rule == rule]
    return alert


def test_an_inhibited_alert_is_kept_and_asks_for_nothing(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, LOSS_UP)
            await bench.open()
            await bench.send([*healthy(10), math.nan], first_step=0)
            await bench.settle()
            alert = await alert_of(bench, "LossUp")

            assert (alert.state, alert.inhibited_by) == (AlertState.FIRING, "NonFinite")
            assert [command.kind for command in await bench.commands()] == ["rollback"]

    asyncio.run(scenario())


def test_what_outlasts_its_explanation_is_told_and_acts_even_over_a_restart(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, LOSS_UP)
            await bench.open()
            await bench.send([*healthy(10), math.nan], first_step=0)
            await bench.settle()
        async with start_service() as bench:
            bench.seqs[1, 0] = 1
            await bench.send([9.0] * 40, first_step=11)
            await bench.settle()
            alert = await alert_of(bench, "LossUp")

            assert (alert.state, alert.inhibited_by) == (AlertState.FIRING, None)
            assert "released" in await kinds(bench, alert)
            assert "checkpoint" in [command.kind for command in await bench.commands()]

    asyncio.run(scenario())


def test_a_rule_on_trial_is_recorded_and_does_nothing(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, {**LOSS_UP, "shadow": True})
            await bench.open()
            await bench.send([*healthy(10), 9.0], first_step=0)
            await bench.settle()
            (alert,) = await bench.alerts()

            assert (alert.rule, alert.shadow, alert.is_notifiable) == ("LossUp", True, False)
            assert await bench.commands() == []

    asyncio.run(scenario())


def test_an_alert_that_the_end_of_the_run_closes_did_not_recover(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, LOSS_UP)
            await bench.open()
            await bench.send([*healthy(10), *[9.0] * 5], first_step=0)
            await bench.settle()
            await bench.close()
            await bench.alerting.ticker.tick_slowly()
            alert = await alert_of(bench, "LossUp")

            assert alert.state is AlertState.RESOLVED
            assert alert.resolution is Resolution.RUN_ENDED
            assert (alert.onset_step, alert.resolved_step) == (10, 14)

    asyncio.run(scenario())


def test_an_alert_whose_condition_is_over_recovered(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, LOSS_UP)
            await bench.open()
            await bench.send([*healthy(10), 9.0, *healthy(5)], first_step=0)
            await bench.settle()

            assert (await alert_of(bench, "LossUp")).resolution is Resolution.RECOVERED

    asyncio.run(scenario())


def test_an_alert_tells_its_worst_while_it_fires_and_after(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, {**LOSS_UP, "keep_firing_for": {"steps": 50}})
            await bench.open()
            await bench.send([*healthy(10), 9.0, 9.1], first_step=0)
            await bench.settle()
            before = await alert_of(bench, "LossUp")
            await bench.send([80.0, 20.0, *healthy(2)], first_step=12)
            await bench.settle()
            after = await alert_of(bench, "LossUp")

            assert before.facts.peak == PeakFacts(9.0, 10)
            assert after.facts.peak == PeakFacts(80.0, 12)
            assert await kinds(bench, after) == ["firing", "worsened", "recovering"]

    asyncio.run(scenario())
