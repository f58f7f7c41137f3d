"""From a firing alert to a command, as the run's policy has it."""

import asyncio
import math

import pytest
from tests.server.alerts.bench import RUN, Bench, StartService, healthy, rule_file
from tests.server.harness import both_engines

from runwatch.alerts import AlertState
from runwatch.commands import CommandState, Rollback
from runwatch.vocabulary import PolicyMode
from runwatch_server.alerts.records import Recovery
from runwatch_server.errors import ConflictError
from runwatch_server.rules.pack import split_file

pytestmark = both_engines


async def break_at(bench: Bench, step: int, *, segment: int = 0) -> None:
    await bench.send([math.nan], first_step=step, segment=segment)
    await bench.settle()


def test_in_auto_a_rollback_goes_to_before_the_onset(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.AUTO)
            await bench.send(healthy(10), first_step=0)
            await break_at(bench, 10)
            (command,) = await bench.commands()
            assert command.action == Rollback(before_step=10)
            assert command.state is CommandState.QUEUED
            told = await bench.alerting.delivery.pending(RUN, 1, 0)
            assert [told_command.id for told_command in told] == [command.id]

    asyncio.run(scenario())


def test_in_observe_it_is_only_proposed(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.OBSERVE)
            await break_at(bench, 0)
            (command,) = await bench.commands()
            assert command.state is CommandState.PROPOSED
            assert await bench.alerting.delivery.pending(RUN, 1, 0) == ()

    asyncio.run(scenario())


def test_what_was_only_proposed_can_have_been_applied_by_nobody(
    start_service: StartService,
) -> None:
    """Nor once it was turned down: no trainer was ever told of it."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.ASK)
            await break_at(bench, 0)
            (proposed,) = await bench.commands()
            with pytest.raises(ConflictError, match="never sent to a trainer"):
                await bench.answer(proposed.id, CommandState.APPLIED)
            await bench.alerting.commands.cancel(proposed.id, actor="key:anna")
            with pytest.raises(ConflictError, match="never sent to a trainer"):
                await bench.answer(proposed.id, CommandState.APPLIED)
            (turned_down,) = await bench.commands()
            assert turned_down.state is CommandState.CANCELLED

    asyncio.run(scenario())


def test_in_ask_it_goes_once_a_person_approves(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.ASK)
            await break_at(bench, 0)
            (proposed,) = await bench.commands()
            await bench.alerting.commands.approve(proposed.id, actor="key:anna")
            (told,) = await bench.alerting.delivery.pending(RUN, 1, 0)
            assert (proposed.state, told.id) == (CommandState.PROPOSED, proposed.id)

    asyncio.run(scenario())


def test_a_proposal_is_withdrawn_once_its_alert_has_recovered_and_the_next_one_has_its_own(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.ASK)
            await break_at(bench, 0)
            await bench.send(healthy(60), first_step=1)
            await bench.settle()
            (command,) = await bench.commands()
            assert command.state is CommandState.CANCELLED
            assert command.detail == {"reason": "its alert has recovered"}

            await break_at(bench, 61)
            assert [one.state for one in await bench.commands()] == [
                CommandState.CANCELLED,
                CommandState.PROPOSED,
            ]

    asyncio.run(scenario())


def test_the_rollback_goes_to_before_the_first_sign_of_the_incident(
    start_service: StartService,
) -> None:
    filed = split_file(rule_file("Rising", "loss > 3", for_steps=50))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.send([*healthy(10), 4.0, 5.0, math.nan], first_step=0)
            await bench.settle()
            (command,) = await bench.commands()
            assert command.action == Rollback(before_step=10)

    asyncio.run(scenario())


def test_a_first_sign_that_is_over_already_still_belongs_to_the_incident(
    start_service: StartService,
) -> None:
    filed = split_file(rule_file("Spike", "loss > 3", keep_steps=20))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.send([*healthy(10), 4.0, *healthy(2), math.nan], first_step=0)
            await bench.settle()
            (command,) = await bench.commands()
            assert command.action == Rollback(before_step=10)

    asyncio.run(scenario())


def test_after_a_rollback_the_run_recovers_and_nothing_orders_a_second(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.send(healthy(10), first_step=0)
            await break_at(bench, 10)
            (command,) = await bench.commands()
            await bench.answer(command.id, CommandState.APPLIED, step=11, detail={"to_step": 9})
            await bench.send([math.nan], first_step=11)  # was on its way already
            await bench.send(healthy(60), first_step=10, segment=1)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.state is AlertState.RESOLVED
            assert alert.recovery is Recovery.RECOVERED
            assert len(await bench.commands()) == 1

    asyncio.run(scenario())


def test_an_alert_that_still_fires_long_after_its_cure_says_so(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await break_at(bench, 10)
            (command,) = await bench.commands()
            await bench.answer(command.id, CommandState.APPLIED, step=11, detail={"to_step": 9})
            await bench.send([math.nan] * 250, first_step=10, segment=1)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.recovery is Recovery.NOT_RECOVERED

    asyncio.run(scenario())


def test_steps_that_a_rollback_took_back_say_nothing_of_its_success(
    start_service: StartService,
) -> None:
    """A person took their time: what the run did meanwhile is judged after the receipt."""

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await break_at(bench, 10)
            (command,) = await bench.commands()
            await bench.answer(command.id, CommandState.APPLIED, step=700, detail={"to_step": 9})
            await bench.send([math.nan] * 689, first_step=11)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.recovery is Recovery.WATCHED
            await bench.send(healthy(60), first_step=10, segment=1)
            await bench.settle()
            (alert,) = await bench.alerts()
            assert alert.recovery is Recovery.RECOVERED

    asyncio.run(scenario())


def test_a_receipt_that_comes_after_the_healthy_steps_still_counts(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await break_at(bench, 10)
            await bench.send(healthy(60), first_step=10, segment=1)
            await bench.settle()
            (command,) = await bench.commands()
            await bench.answer(command.id, CommandState.APPLIED, step=11, detail={"to_step": 9})
            (alert,) = await bench.alerts()
            assert (alert.state, alert.recovery) == (AlertState.RESOLVED, Recovery.RECOVERED)

    asyncio.run(scenario())


def test_automatic_commands_go_one_at_a_time(start_service: StartService) -> None:
    actions: list[object] = [{"checkpoint": {}}, {"lower_lr": {"scale": 0.5}}]
    filed = split_file(rule_file("High", "loss > 3", actions=actions))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.send([*healthy(3), 4.0], first_step=0)
            await bench.settle()
            first, second = await bench.commands()
            assert (first.kind, second.kind) == ("checkpoint", "lower_lr")
            assert (first.state, second.state) == (CommandState.QUEUED, CommandState.PROPOSED)

            await bench.answer(first.id, CommandState.APPLIED, step=4)
            (told,) = await bench.alerting.delivery.pending(RUN, 1, 0)
            assert told.id == second.id

    asyncio.run(scenario())


def test_what_the_trainer_refuses_keeps_the_rest_from_going(start_service: StartService) -> None:
    actions: list[object] = [{"checkpoint": {}}, {"lower_lr": {"scale": 0.5}}]
    filed = split_file(rule_file("High", "loss > 3", actions=actions))

    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open()
            await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.send([4.0], first_step=0)
            await bench.settle()
            first, _ = await bench.commands()
            await bench.answer(first.id, CommandState.REJECTED)
            assert [command.state for command in await bench.commands()] == [
                CommandState.REJECTED,
                CommandState.CANCELLED,
            ]

    asyncio.run(scenario())


def test_late_frames_do_not_silence_the_live_ones_behind_them(start_service: StartService) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await bench.open(policy=PolicyMode.AUTO)
            await bench.send([math.nan], first_step=10, seq=2)
            await bench.send(healthy(10), first_step=0, seq=1, late=True)
            await bench.settle()
            (command,) = await bench.commands()
            assert command.action == Rollback(before_step=10)

    asyncio.run(scenario())


def test_who_waits_behind_one_that_is_taken_back_waits_for_what_that_waited_for(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            saves = rule_file("Saves", "loss > 50", actions=[{"checkpoint": {}}, {"rollback": {}}])
            slows = rule_file("Slows", "loss > 90", actions=[{"lower_lr": {"scale": 0.5}}])
            for file in (saves, slows):
                filed = split_file(file)
                await bench.alerting.rules.create(filed, project="", enabled=True, actor="tests")
            await bench.open(policy=PolicyMode.AUTO)
            await bench.send([2.0, 60.0], first_step=0)
            await bench.settle()
            await bench.send([100.0], first_step=2)
            await bench.settle()
            [checkpoint, rollback, lower_lr] = await bench.commands()
            assert (rollback.after_id, lower_lr.after_id) == (checkpoint.id, rollback.id)

            await bench.alerting.commands.cancel(rollback.id, actor="tests")
            [_, _, lower_lr] = await bench.commands()
            assert (lower_lr.state, lower_lr.after_id) == (CommandState.PROPOSED, checkpoint.id)

            await bench.answer(checkpoint.id, CommandState.APPLIED, step=3)
            [_, _, lower_lr] = await bench.commands()
            assert (lower_lr.state, lower_lr.after_id) == (CommandState.QUEUED, None)

    asyncio.run(scenario())
