"""What the built-in rules try next for a loss that stays up, and that they only propose unasked."""

import asyncio

from tests.server.alerts.bench import Bench, StartService
from tests.server.harness import both_engines

from runwatch.commands import AnyAction, CommandState, LowerLr, Rollback
from runwatch.frames import Scalar
from runwatch.vocabulary import PolicyMode
from runwatch_server.alerts.actions.recovery import RECOVERY_STEPS
from runwatch_server.commands.records import CommandRecord

pytestmark = both_engines

ONSET = 160
FALLEN = [8.0 - 0.05 * step for step in range(120)] + [2.0 + 0.01 * (row % 5) for row in range(40)]
UP = [6.0 + 0.01 * (row % 5) for row in range(40)]
STILL_UP = [6.0 + 0.01 * (row % 5) for row in range(RECOVERY_STEPS + 1)]


async def diverge(bench: Bench, policy: PolicyMode) -> None:
    """A loss that had fallen stands at three times its best from ONSET on."""
    await bench.open(policy=policy)
    await bench.send([*FALLEN, *UP], first_step=0)
    await bench.settle()


async def cures(bench: Bench) -> list[CommandRecord]:
    """What LossDivergence asked for, in its order."""
    found = [one for one in await bench.commands() if one.reason.startswith("LossDivergence")]
    return sorted(found, key=lambda command: command.action_index or 0)


async def apply_all(bench: Bench, *, step: int) -> None:
    """Everything that is under way, the rollback to just before the loss rose."""
    while under_way := [one for one in await bench.commands() if one.state is CommandState.QUEUED]:
        for one in under_way:
            detail: dict[str, Scalar] = {"to_step": ONSET - 1} if one.kind == "rollback" else {}
            await bench.answer(one.id, CommandState.APPLIED, step=step, detail=detail)


async def stay_up(bench: Bench, *, first_step: int, segment: int) -> int:
    """Train on for as long as a cure is given; returns the step that comes next."""
    await bench.send(STILL_UP, first_step=first_step, segment=segment)
    await bench.settle()
    return first_step + len(STILL_UP)


def test_a_loss_that_stays_up_is_given_a_lower_rate_and_then_another_way_back(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await diverge(bench, PolicyMode.AUTO)
            assert actions(await cures(bench)) == [Rollback(before_step=ONSET), LowerLr(0.5)]

            await apply_all(bench, step=ONSET)
            next_step = await stay_up(bench, first_step=ONSET, segment=1)
            assert actions(await cures(bench))[2:] == [LowerLr(0.25)]

            await apply_all(bench, step=next_step)
            await stay_up(bench, first_step=next_step, segment=1)
            assert actions(await cures(bench))[2:] == [LowerLr(0.25), Rollback(before_step=ONSET)]

    asyncio.run(scenario())


def test_in_observe_nothing_more_is_proposed_while_nothing_was_done(
    start_service: StartService,
) -> None:
    async def scenario() -> None:
        async with start_service() as bench:
            await diverge(bench, PolicyMode.OBSERVE)
            await stay_up(bench, first_step=ONSET + len(UP), segment=0)
            found = await cures(bench)
            assert actions(found) == [Rollback(before_step=ONSET), LowerLr(0.5)]
            assert {one.state for one in found} == {CommandState.PROPOSED}

    asyncio.run(scenario())


def actions(commands: list[CommandRecord]) -> list[AnyAction]:
    return [command.action for command in commands]
