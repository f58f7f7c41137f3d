"""The card: what went first, what changed before, causes by their evidence, what was tried."""

import asyncio
import math

import msgspec
import pytest
from tests.server.alerts.bench import Bench, StartService, healthy
from tests.server.alerts.test_incidents import LOSS_UP, use

from runwatch.frames import Event, Scalar
from runwatch.omissions import Omission, Why
from runwatch_server.alerts.diagnosis.card import DiagnosisView
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.errors import NotFoundError
from runwatch_server.telemetry.reading import Reader

DIAGNOSED: dict[str, object] = {
    **LOSS_UP,
    "actions": [{"rollback": {}}],
    "diagnosis": {
        "causes": [
            {"cause": "a scaler", "signs": ["half_precision"]},
            {"cause": "a bad batch", "signs": ["one_step", "loss_first"]},
        ],
        "try_first": "go back before step {onset_step}",
        "worked_if": "the loss is back",
    },
}


async def card(bench: Bench, alert: AlertRecord) -> DiagnosisView:
    return (await bench.alerting.alerts.card(alert)).diagnosis


async def spiked(bench: Bench) -> AlertRecord:
    """The alert of a loss that jumps at step 100 and is back a step later."""
    await use(bench, DIAGNOSED)
    await bench.open()
    await bench.send([*healthy(100), 9.0, *healthy(20)], first_step=0)
    await bench.settle()
    (alert,) = [one for one in await bench.alerts() if one.rule == "LossUp"]
    return alert


def test_causes_are_ranked_by_what_the_run_shows(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            alert = await spiked(bench)
            found = await card(bench, alert)

            assert [(cause.cause, cause.score) for cause in found.causes] == [
                ("a bad batch", 2),
                ("a scaler", 0),
            ]
            assert found.causes[0].evidence == (
                "loss was back after 1 step",
                "the loss left its past at step 100, the gradient did not",
            )
            assert [(one.series, one.step) for one in found.order] == [("loss", 100)]
            assert found.try_first == "go back before step 100"
            assert "Likely: a bad batch (loss was back after 1 step; " in found.short
            assert (found.onset.step, found.onset.layer) == (100, None)

    asyncio.run(scenario())


def test_a_loss_that_leapt_long_before_the_onset_and_stayed_up_is_what_went_first(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, {**DIAGNOSED, "when": "loss > 3"})
            await bench.open()
            await bench.send([*healthy(100), *[2.8] * 50, *[3.2] * 20], first_step=0)
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "LossUp"]
            found = await card(bench, alert)

            assert alert.onset_step == 150
            assert [(one.series, one.step) for one in found.order] == [("loss", 100)]
            assert found.causes[0].cause == "a bad batch"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("why", "likely"),
    [
        (Why.NO_OPTIMIZER, "left out"),
        (Why.NO_GRADIENT, "a cut graph"),
        (Why.NOT_REDUCED, "past the wrapper"),
    ],
)
def test_what_the_hook_knows_of_layers_left_out_decides_which_cause_is_first(
    why: Why, likely: str, start_service: StartService
) -> None:
    causes = [
        {"cause": "something else", "signs": ["first_steps", "loss_first"]},
        {"cause": "a cut graph", "signs": ["no_gradient"]},
        {"cause": "left out", "signs": ["no_optimizer"]},
        {"cause": "past the wrapper", "signs": ["not_reduced"]},
    ]
    omission = Omission.of("left out", ["head"], metric="untrained_layers", why=why)

    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, {**LOSS_UP, "diagnosis": {"causes": causes}})
            await bench.open()
            told = Event(40, "untrained", 1.0, omission.to_detail())
            await bench.send([*healthy(40), *[9.0] * 20], first_step=0, events=[told])
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "LossUp"]

            assert (await card(bench, alert)).causes[0].cause == likely

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("nan_from", "words"),
    [
        (
            101,
            [
                "head: gradient NaN or infinite (1 value) at step 100",
                "loss went from 2.02 to NaN at step 101",
                "gradient of 1 more layer at step 101",
            ],
        ),
        (
            100,
            [
                "loss went from 2.02 to NaN at step 100",
                "gradient of 1 layer at step 100",
                "gradient of 1 more layer at step 101",
            ],
        ),
    ],
)
def test_a_gradient_that_is_not_finite_is_said_to_be_broken_and_not_to_have_gone_to_0(
    start_service: StartService, nan_from: int, words: list[str]
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(100), first_step=0)
            loss = math.nan if nan_from == 100 else 2.0
            await bench.send([loss], first_step=100, nonfinite=(0.0, 1.0))
            await bench.send([math.nan] * 5, first_step=101, nonfinite=(4.0, 4.0))
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            found = await card(bench, alert)

            assert [one.words for one in found.order] == words
            assert f"First: {'; '.join(words)}\n" in found.short

    asyncio.run(scenario())


def test_an_alert_of_another_rank_at_the_same_time_came_not_before(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=3)
            for rank in range(3):
                await bench.send([*healthy(40), math.nan], first_step=0, rank=rank)
            await bench.settle()
            found = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            assert sorted(one.rank for one in found) == [0, 1, 2]

            assert [(await card(bench, one)).similar for one in found] == [[], [], []]

    asyncio.run(scenario())


def test_the_card_says_what_was_proposed_and_what_similar_alerts_brought(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await use(bench, DIAGNOSED)
            await bench.open()
            spike = [*healthy(100), 9.0, *healthy(20)]
            await bench.send(spike, first_step=0)
            await bench.send(spike, first_step=len(spike))
            await bench.settle()
            first, second = [one for one in await bench.alerts() if one.rule == "LossUp"]
            found = await card(bench, second)

            assert [one.id for one in found.similar] == [first.id]
            assert found.similar[0].resolution == "recovered"
            assert found.similar[0].tried == ("rollback proposed",)
            proposed = (await card(bench, first)).proposed
            assert proposed is not None
            assert (proposed.kind, proposed.state) == ("rollback", "proposed")
            assert msgspec.json.encode(found)

    asyncio.run(scenario())


def test_what_is_no_number_is_in_the_order_of_events(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send([*healthy(40), math.nan], first_step=0, nonfinite=(0.0, 0.0))
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            found = await card(bench, alert)

            assert (found.order[0].series, found.order[0].value) == ("loss", "NaN")
            assert "to NaN at step 40" in found.order[0].words
            assert found.causes[0].cause.startswith("a label or token index out of range")

    asyncio.run(scenario())


def test_a_diagnostic_bundle_of_the_step_stands_on_the_card(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            detail: dict[str, Scalar | list[str]] = {"path": "bundles/step-40", "of_step": 40}
            bundle = Event(40, "diagnostic_bundle", 1.7e9, detail)
            failed = Event(40, "diagnostic_bundle", 1.7e9, {"of_step": 40, "error": "disk full"})
            await bench.send([*healthy(40), math.nan], first_step=0, events=(bundle, failed))
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            found = await card(bench, alert)

            assert found.bundles == ["bundles/step-40"]
            assert "Replay: runwatch replay bundles/step-40" in found.short
            assert found.changed_before == []

    asyncio.run(scenario())


def test_the_host_of_the_rank_stands_on_the_card_and_is_no_change(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(num_ranks=32)
            for rank in range(32):
                told = Event(0, "host", 1.7e9, {"hostname": f"node-{rank // 8}"})
                await bench.send(healthy(40), first_step=0, rank=rank, events=(told,))
            await bench.send([math.nan], first_step=40, rank=17)
            await bench.settle()
            (alert,) = [one for one in await bench.alerts() if one.rule == "NonFinite"]
            found = await card(bench, alert)

            assert (found.onset.rank, found.onset.host) == (17, "node-2")
            assert found.short.startswith("Host: node-2\n")
            assert found.changed_before == []

    asyncio.run(scenario())


def test_what_led_to_an_alert_is_left_out_on_a_machine_that_is_too_busy_to_find_it(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            alert = await spiked(bench)
            monkeypatch.setattr("runwatch_server.alerts.diagnosis.findings.TIMEOUT_S", 0.0)
            caplog.clear()
            found = await card(bench, alert)

            assert found.order == []
            (entry,) = [one for one in caplog.records if alert.id in one.getMessage()]
            assert entry.getMessage().endswith("what led to it was not found within 0 s")
            assert (entry.levelname, entry.exc_info) == ("WARNING", None)

    asyncio.run(scenario())


def test_an_alert_whose_run_is_removed_as_it_is_told_is_no_error(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(*_: object) -> None:
        raise NotFoundError("attempt_not_found", "The run has no attempt 1. It has none yet.")

    async def scenario() -> None:
        async with start_service() as bench:
            alert = await spiked(bench)
            monkeypatch.setattr(Reader, "metric_series", gone)
            with caplog.at_level("INFO"):
                found = await card(bench, alert)

            assert found.order == []
            (entry,) = [one for one in caplog.records if alert.id in one.getMessage()]
            assert (entry.levelname, entry.exc_info) == ("INFO", None)

    asyncio.run(scenario())
