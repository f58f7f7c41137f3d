"""What the places at which ranks stand say of the cause."""

import pytest

from runwatch.rules.diagnosis import Sign
from runwatch.stalls import Held, Stage, Stall, StalledRank
from runwatch_server.alerts.diagnosis.run_signs import stall_signs

BACKWARD = Stall(45.0, Stage.BACKWARD, waits=True, place="train.py:40 in main")


def rank(number: int, stall: Stall, *, is_apart: bool = False) -> StalledRank:
    return StalledRank(number, 9, None, stall, is_apart=is_apart)


def stands(stage: Stage, held: Held | None = None) -> Stall:
    return Stall(45.0, stage, waits=False, place="data.py:17 in read", held=held)


@pytest.mark.parametrize(
    ("stall", "expected"),
    [
        (stands(Stage.DATA), {Sign.STALLED_IN_DATA}),
        (stands(Stage.DATA, Held.CHILD_STOPPED), {Sign.STALLED_IN_DATA}),
        (
            stands(Stage.DATA, Held.CHILD_ON_DISK),
            {Sign.STALLED_IN_DATA, Sign.STALLED_ON_DISK},
        ),
        (stands(Stage.SAVING, Held.ON_DISK), {Sign.STALLED_IN_SAVING, Sign.STALLED_ON_DISK}),
        (stands(Stage.PROGRAM, Held.ON_DISK), {Sign.STALLED_ON_DISK}),
        (stands(Stage.PROGRAM), set[Sign]()),
    ],
)
def test_the_stage_and_what_the_system_keeps_waiting_are_signs(
    stall: Stall, expected: set[Sign]
) -> None:
    assert set(stall_signs([rank(0, stall)])) == expected


def test_of_ranks_apart_only_those_that_hold_up_the_others_say_a_cause() -> None:
    holding = rank(1, stands(Stage.DATA, Held.CHILD_ON_DISK), is_apart=True)

    found = stall_signs([holding, rank(0, BACKWARD)])

    assert set(found) == {Sign.RANKS_APART, Sign.STALLED_IN_DATA, Sign.STALLED_ON_DISK}
    assert found[Sign.STALLED_ON_DISK].startswith("rank 1 stands in the data loader")
