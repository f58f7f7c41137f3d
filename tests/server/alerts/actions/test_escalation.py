"""One cure after another, while the run does not recover, and at last a person."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.server.alerts.bench import RUN, Bench, StartService, healthy, rule_file
from tests.server.harness import both_engines

from runwatch.alerts import AlertState
from runwatch.commands import CommandState, LowerLr, Rollback, Stop
from runwatch.frames import Scalar
from runwatch.vocabulary import PolicyMode, Severity
from runwatch_server.alerts.actions.recovery import RECOVERY_STEPS
from runwatch_server.alerts.actions.rungs import rungs_of
from runwatch_server.commands.records import CommandRecord
from runwatch_server.rules.pack import split_file

pytestmark = both_engines

LADDER: list[object] = [
    {"lower_lr": {"scale": 0.5}},
    {"lower_lr": {"scale": 0.25}},
    {"page": {}},
]
HIGH = [4.0] * (RECOVERY_STEPS + 1)
CHECKPOINTED = ("command_proposed", "suppressed", "pending")
"""What is told of the checkpoint that the rule asks for at once."""


async def begin(
    bench: Bench,
    ladder: list[object] = LADDER,
    *,
    policy: PolicyMode = PolicyMode.AUTO,
    inhibited_by: Sequence[object] = (),
) -> None:
    """A run whose loss is too high from step 3 on, under a rule with a ladder."""
    await bench.open(policy=policy)
    await file_rule(bench, ladder, inhibited_by)
    await bench.send([*healthy(3), 4.0], first_step=0)
    await bench.settle()


async def file_rule(
    bench: Bench, ladder: list[object], inhibited_by: Sequence[object] = ()
) -> None:
    document: dict[str, Any] = rule_file("High", "loss > 3", actions=[{"checkpoint": {}}])
    more = {"ladder": ladder} | ({"inhibited_by": list(inhibited_by)} if inhibited_by else {})
    document["groups"][0]["rules"][0] |= more
    (filed,) = split_file(document)
    await bench.alerting.rules.create([filed], project="", enabled=True, actor="tests")


async def cures(bench: Bench) -> list[CommandRecord]:
    """In the order of their rungs: ids that a clock which stands still gives two services are in
    none."""
    found = [command for command in await bench.commands() if command.kind != "checkpoint"]
    return sorted(found, key=lambda command: command.action_index or 0)


async def apply(bench: Bench, command: CommandRecord, *, step: int) -> None:
    """The checkpoint before it first, which nothing goes beside."""
    for one in await bench.commands():
        if one.kind == "checkpoint" and not one.state.is_ended:
            await bench.answer(one.id, CommandState.APPLIED, step=step)
    await bench.answer(command.id, CommandState.APPLIED, step=step)


async def standings(bench: Bench) -> list[str]:
    (alert,) = await bench.alerts()
    return [rung.standing for rung in rungs_of(alert, await bench.commands())]


def test_the_first_rung_goes_with_actions_that_cure_nothing(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            assert [command.kind for command in await bench.commands()] == [
                "checkpoint",
                "lower_lr",
            ]
            assert await standings(bench) == ["proposed", "next", "later"]

    asyncio.run(scenario())


def test_what_did_not_help_is_followed_by_the_next_rung_and_that_by_recovery(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            first, second = await cures(bench)
            assert second.action == LowerLr(0.25)
            assert second.state is CommandState.QUEUED
            assert await standings(bench) == ["did not help", "queued", "next"]

            await bench.answer(second.id, CommandState.APPLIED, step=4 + len(HIGH))
            await bench.send(healthy(5), first_step=4 + len(HIGH))
            await bench.settle()
            assert await standings(bench) == ["did not help", "recovered", "not needed"]

    asyncio.run(scenario())


def test_a_service_that_has_not_heard_of_the_learning_rate_does_not_raise_it(
    start_service: StartService,
) -> None:
    """The trainer tells its scale with a heartbeat; none has come since the service started."""

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            _, second = await cures(bench)
            await bench.answer(second.id, CommandState.APPLIED, step=205)
            await bench.send([*healthy(80), 4.0], first_step=205)
            await bench.settle()
            *_, again = (one for one in await bench.alerts() if one.rule == "High")
            assert again.onset_step == 285
            assert [command.action for command in await cures(bench)] == [
                LowerLr(0.5),
                LowerLr(0.25),
            ]

    asyncio.run(scenario())


def test_a_rung_that_is_given_no_time_is_not_followed(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH[:-2], first_step=4)
            await bench.settle()
            assert len(await cures(bench)) == 1

    asyncio.run(scenario())


def test_a_service_that_starts_again_between_two_rungs_goes_on_where_it_was(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH[:100], first_step=4)
            await bench.settle()
            seqs = bench.seqs
        async with start_service() as bench:
            bench.seqs.update(seqs)
            await bench.send(HIGH[:150], first_step=104)
            await bench.settle()
            await bench.send(HIGH[:50], first_step=254)
            await bench.settle()
            assert [command.action for command in await cures(bench)] == [
                LowerLr(0.5),
                LowerLr(0.25),
            ]

    asyncio.run(scenario())


def test_what_the_trainer_refuses_is_followed_at_once(start_service: StartService) -> None:
    ladder: list[object] = [{"rollback": {}}, {"lower_lr": {"scale": 0.5}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            checkpoint, rollback = await bench.commands()
            await bench.answer(checkpoint.id, CommandState.APPLIED, step=4)
            await bench.answer(rollback.id, CommandState.FAILED, step=4)
            await bench.send([4.0], first_step=4)
            await bench.settle()
            assert [command.kind for command in await cures(bench)] == ["rollback", "lower_lr"]
            assert await standings(bench) == ["failed", "queued"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "left_undone"),
    [
        ([CommandState.APPLIED, CommandState.EXPIRED], CommandState.EXPIRED),
        ([CommandState.FAILED], CommandState.CANCELLED),  # the checkpoint that it waited for
    ],
)
def test_what_comes_to_nothing_is_followed_too(
    start_service: StartService, answers: list[CommandState], left_undone: CommandState
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, [{"stop": {}}, {"page": {}}])
            for command, answer in zip(await bench.commands(), answers, strict=False):
                await bench.answer(command.id, answer, step=4)
            await bench.send([4.0], first_step=4)
            await bench.settle()
            assert await standings(bench) == [left_undone, "paged"]

    asyncio.run(scenario())


@pytest.mark.parametrize("index", [0, 1])
def test_who_takes_a_rung_back_or_what_it_waits_for_ends_the_climb(
    start_service: StartService, index: int
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            taken_back = (await bench.commands())[index]
            await bench.alerting.commands.cancel(taken_back.id, actor="key:anna")
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            assert await standings(bench) == ["cancelled", "next", "later"]

    asyncio.run(scenario())


def test_a_rung_that_another_s_rollback_overtook_gives_that_its_time(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await file_rule(bench, [{"lower_lr": {"scale": 0.5}}, {"page": {}}])
            await bench.send([*healthy(3), math.nan, 4.0], first_step=0)
            await bench.settle()
            for command in await bench.commands():
                if command.reason.startswith("NonFinite"):
                    detail: dict[str, Scalar] = {"to_step": 2} if command.kind == "rollback" else {}
                    await bench.answer(command.id, CommandState.APPLIED, step=5, detail=detail)
            found = []
            for step in (3, 103, 203):
                await bench.send([4.0] * 100, first_step=step, segment=1)
                await bench.settle()
                (high,) = (one for one in await bench.alerts() if one.rule == "High")
                found.append(high.severity)
            assert found == [Severity.WARNING, Severity.WARNING, Severity.CRITICAL]

    asyncio.run(scenario())


def test_who_acknowledges_an_alert_is_left_to_it(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            (alert,) = await bench.alerts()
            await bench.alerting.alerts.acknowledge(alert.id, actor="key:anna", note="on it")
            for frames in range(2):
                await bench.send(HIGH, first_step=4 + frames * len(HIGH))
                await bench.settle()
            assert await standings(bench) == ["not recovered", "held", "held"]
            events = (await bench.alerting.alerts.card(alert)).events
            held = [event for event in events if event.kind == "ladder_held"]
            assert [event.detail["reason"] for event in held] == ["acknowledged"]
            (alert,) = await bench.alerts()
            assert alert.severity is Severity.WARNING

    asyncio.run(scenario())


def test_after_a_rollback_the_next_rung_is_of_the_new_segment(start_service: StartService) -> None:
    ladder: list[object] = [{"rollback": {}}, {"rollback": {}}, {"stop": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            (first,) = await cures(bench)
            await apply_rollback(bench, first)
            await bench.send(HIGH, first_step=3, segment=1)
            await bench.settle()
            _, second = await cures(bench)
            assert (second.action, second.segment) == (Rollback(before_step=3), 1)

            await apply_rollback(bench, second)
            await bench.send(HIGH, first_step=3, segment=2)
            await bench.settle()
            assert (await cures(bench))[-1].action == Stop()

    asyncio.run(scenario())


async def apply_rollback(bench: Bench, command: CommandRecord) -> None:
    for one in await bench.commands():
        if one.kind == "checkpoint" and not one.state.is_ended:
            await bench.answer(one.id, CommandState.APPLIED, step=4)
    await bench.answer(command.id, CommandState.APPLIED, step=300, detail={"to_step": 2})


def test_the_last_rung_makes_the_alert_critical(start_service: StartService) -> None:
    ladder: list[object] = [{"lower_lr": {"scale": 0.5}}, {"page": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.severity is Severity.CRITICAL
            assert await standings(bench) == ["did not help", "paged"]
            kinds = [event.kind for event in (await bench.alerting.alerts.card(alert)).events]
            assert kinds[-2:] == ["not_recovered", "paged"]

    asyncio.run(scenario())


def test_what_the_trainer_does_not_allow_is_passed_over_and_says_why(
    start_service: StartService,
) -> None:
    """The learning rate's floor is a limit like the budget and the allow-list."""
    ladder: list[object] = [{"lower_lr": {"scale": 0.01}}, {"page": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            (alert,) = await bench.alerts()
            events = (await bench.alerting.alerts.card(alert)).events
            passed_over = next(event for event in events if event.kind == "rung_passed_over")
            assert passed_over.detail["reason"] == "below_lr_floor"
            assert await standings(bench) == ["passed over", "paged"]

    asyncio.run(scenario())


def test_in_ask_each_rung_waits_for_a_person(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, policy=PolicyMode.ASK)
            (first,) = await cures(bench)
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            assert [command.state for command in await cures(bench)] == [CommandState.PROPOSED]

            await bench.alerting.commands.approve(first.id, actor="key:anna")
            await bench.answer(first.id, CommandState.APPLIED, step=4 + len(HIGH))
            await bench.send(HIGH, first_step=4 + len(HIGH))
            await bench.settle()
            assert [command.state for command in await cures(bench)] == [
                CommandState.APPLIED,
                CommandState.PROPOSED,
            ]

    asyncio.run(scenario())


def test_what_was_made_worse_is_not_given_the_whole_time(start_service: StartService) -> None:
    ladder: list[object] = [{"lower_lr": {"scale": 0.5}}, {"stop": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send([*HIGH[:60], 6.0], first_step=4)
            await bench.settle()
            assert [command.action for command in await cures(bench)] == [LowerLr(0.5), Stop()]
            (alert,) = (one for one in await bench.alerts() if one.rule == "High")
            events = (await bench.alerting.alerts.card(alert)).events
            assert "worse" in [event.kind for event in events]

    asyncio.run(scenario())


@pytest.mark.parametrize("frames", [[[*HIGH[:60], 6.0], [9.0]], [[*HIGH[:60], 6.0, 9.0]]])
def test_what_gets_worse_again_before_the_next_rung_is_tried_is_no_second_verdict(
    start_service: StartService, frames: list[list[float]]
) -> None:
    ladder: list[object] = [{"lower_lr": {"scale": 0.5}}, {"rollback": {}}, {"stop": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, ladder)
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            step = 4
            for losses in frames:
                await bench.send(losses, first_step=step)
                await bench.settle()
                step += len(losses)
            assert [command.kind for command in await cures(bench)] == ["lower_lr", "rollback"]

    asyncio.run(scenario())


def test_nobody_is_paged_for_a_run_that_has_ended_before_its_last_frames_are_judged(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await begin(bench, [{"lower_lr": {"scale": 0.5}}, {"page": {}}])
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH, first_step=4, seq=3)  # not judged while the one before may come
            await bench.pause_of_evaluators()
            await bench.close()
            bench.clock.advance(31)
            await bench.alerting.evaluators.catch_up()
            await bench.settle()
            (alert,) = await bench.alerts()
            assert (alert.rung, alert.severity) == (0, Severity.WARNING)

    asyncio.run(scenario())


def test_an_alert_that_is_released_is_told_again_and_climbs_no_further(
    start_service: StartService,
) -> None:
    (other,) = split_file(rule_file("Other", "step > 15 and step < 40"))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.alerting.rules.create([other], project="", enabled=True, actor="tests")
            await begin(bench, inhibited_by=[{"rules": ["Other"], "within": {"steps": 20}}])
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH[:150], first_step=4)
            await bench.settle()
            high = next(one for one in await bench.alerts() if one.rule == "High")
            kinds = [event.kind for event in (await bench.alerting.alerts.card(high)).events]
            assert "released" in kinds
            assert len(await cures(bench)) == 1

    asyncio.run(scenario())


def test_a_verdict_on_an_alert_that_another_explains_is_not_the_last_word(
    start_service: StartService,
) -> None:
    (other,) = split_file(rule_file("Other", "step > 150 and step < 260"))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.alerting.rules.create([other], project="", enabled=True, actor="tests")
            await begin(
                bench, inhibited_by=[{"rules": ["Other"], "within": {"steps": RECOVERY_STEPS}}]
            )
            (first,) = await cures(bench)
            await apply(bench, first, step=4)
            await bench.send(HIGH, first_step=4)
            await bench.settle()
            assert len(await cures(bench)) == 1

            for frames in (1, 2):
                await bench.send(HIGH, first_step=4 + frames * len(HIGH))
                await bench.settle()
            assert [command.action for command in await cures(bench)] == [
                LowerLr(0.5),
                LowerLr(0.25),
            ]

    asyncio.run(scenario())


def test_a_rung_waits_while_another_alert_is_being_cured(start_service: StartService) -> None:
    ladder: list[object] = [{"rollback": {}}]

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await file_rule(bench, ladder)
            await bench.send([*healthy(3), math.nan, 4.0], first_step=0)
            await bench.settle()
            high = next(one for one in await bench.alerts() if one.rule == "High")
            events = (await bench.alerting.alerts.card(high)).events
            waits = next(event for event in events if event.kind == "rung_waits")
            assert (high.state, waits.detail["reason"]) == (AlertState.FIRING, "already_open")
            assert [command.run_id for command in await cures(bench)] == [RUN]

    asyncio.run(scenario())


def test_a_rung_that_goes_on_waiting_says_so_once(start_service: StartService) -> None:
    """Until another's proposal, which nobody has looked at and whose alert goes on, is decided
    upon."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.ASK)
            await file_rule(bench, [{"rollback": {}}])
            await bench.send([*healthy(3), math.nan, 4.0], first_step=0)
            for frames in range(3):
                first_step = 5 + frames * len(HIGH)
                await bench.send(HIGH, first_step=first_step, nonfinite=(1.0, 0.0))
                await bench.settle()
            high = next(one for one in await bench.alerts() if one.rule == "High")
            events = (await bench.alerting.alerts.card(high)).events
            after_firing = [event.kind for event in events if event.kind not in CHECKPOINTED]
            assert after_firing == ["firing", "rung_waits"]

    asyncio.run(scenario())
