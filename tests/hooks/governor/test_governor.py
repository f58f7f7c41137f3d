"""What is read of a step, by what steps have cost: decided from numbers alone."""

from collections.abc import Iterator, Mapping

import pytest

from runwatch_hooks.governor import EVERYTHING, Change, Governor, Rung, Sampled
from runwatch_hooks.governor.ladder import GRADIENTS, LADDER, NOTHING

COSTS_S = {EVERYTHING: 0.010, GRADIENTS: 0.006, NOTHING: 0.0001}
"""Of each kind of step, beside 0.09 s of training."""
WORK_S = 0.09
DECISION = 32
"""Steps between two looks at what they cost."""


def run(
    governor: Governor, num_steps: int, costs_s: Mapping[Sampled, float] = COSTS_S
) -> list[tuple[int, Change]]:
    """Steps that cost what their kind costs; the changes, each with its step."""
    changes: list[tuple[int, Change]] = []
    for step in range(num_steps):
        sampled = governor.next()
        cost_s = costs_s[sampled]
        change = governor.note(cost_s, WORK_S + cost_s, sampled)
        if change is not None:
            changes.append((step, change))
    return changes


def read(governor: Governor, num_steps: int) -> list[Sampled]:
    return [governor.next() for _ in range(num_steps)]


def test_within_the_budget_everything_is_read() -> None:
    governor = Governor(0.11)

    assert run(governor, 1000) == []
    assert read(governor, 3) == [EVERYTHING] * 3
    assert governor.numbers() == {"sampling_interval": 1.0, "hook_share": pytest.approx(0.1)}


def test_the_weights_go_first_and_then_steps_until_the_budget_is_kept() -> None:
    governor = Governor(0.02)

    changes = run(governor, 3000)

    rungs = [change.rung for _, change in changes]
    assert rungs == [Rung(1, 8), Rung(2, 8), Rung(4, 8), Rung(8, 8)]
    assert [step for step, _ in changes] == [31, 63, 95, 127]
    assert changes[0][1].share == pytest.approx(0.1)
    assert governor.numbers() == {
        "sampling_interval": 8.0,
        "hook_share": pytest.approx(0.0147, abs=1e-4),
    }


def test_a_rung_is_read_as_it_says() -> None:
    rung = Rung(2, 8)

    kinds = [rung.sampled(turn) for turn in range(10)]

    assert kinds[0] == kinds[8] == EVERYTHING
    assert kinds[2] == kinds[4] == kinds[6] == GRADIENTS
    assert kinds[1] == kinds[3] == kinds[5] == kinds[7] == kinds[9] == NOTHING
    assert rung.shares == {EVERYTHING: 0.125, GRADIENTS: 0.375, NOTHING: 0.5}


def test_each_rung_reads_less_than_the_one_before() -> None:
    def cost(rung: Rung) -> float:
        return sum(COSTS_S[kind] * share for kind, share in rung.shares.items())

    costs = [cost(rung) for rung in LADDER]

    assert costs == sorted(costs, reverse=True)
    assert all(rung.weights_every % rung.gradients_every == 0 for rung in LADDER)


def test_a_budget_that_cannot_be_kept_ends_at_the_last_rung() -> None:
    governor = Governor(1e-9)

    changes = run(governor, 2000)

    assert [change.rung for _, change in changes] == list(LADDER[1:])
    assert governor.numbers()["hook_share"] > 1e-9


def test_costs_that_scatter_about_the_budget_do_not_make_it_waver() -> None:
    governor = Governor(0.06)
    run(governor, 10 * DECISION)
    cheaper = {kind: 0.8 * cost for kind, cost in COSTS_S.items()}

    changes: list[tuple[int, Change]] = []
    for _ in range(10):  # reading at every step would take 0.067 of it, and 0.055 by turns
        changes += run(governor, 8 * DECISION, cheaper)
        changes += run(governor, 8 * DECISION)

    assert changes == []
    assert governor.numbers()["sampling_interval"] == 2.0


def test_when_watching_has_become_cheap_more_is_read_again() -> None:
    governor = Governor(0.02)
    run(governor, 10 * DECISION)

    cheap = {kind: cost / 20 for kind, cost in COSTS_S.items()}
    changes = run(governor, 100 * DECISION, cheap)

    assert [change.rung for _, change in changes] == [
        Rung(4, 8),
        Rung(2, 8),
        Rung(1, 8),
        Rung(1, 1),
    ]


def test_a_step_that_cost_a_hundred_times_as_much_moves_nothing() -> None:
    governor = Governor(0.11)
    for _ in range(20):
        run(governor, DECISION - 1)
        governor.note(1.0, WORK_S + 1.0, governor.next())

    assert governor.numbers()["sampling_interval"] == 1.0


def test_rows_in_which_no_optimizer_stepped_are_part_of_the_next_step() -> None:
    governor = Governor(0.011)
    for _ in range(DECISION):
        for _ in range(3):
            governor.note(0.001, 0.1, None)
        sampled = governor.next()
        governor.note(0.001, 0.1, sampled)

    assert governor.numbers() == {"sampling_interval": 1.0, "hook_share": pytest.approx(0.01)}


def test_while_there_is_alarm_everything_is_read() -> None:
    governor = Governor(1e-9)
    run(governor, 2000)
    governor.is_alarmed = True

    assert read(governor, 5) == [EVERYTHING] * 5


def ticks(*times: float) -> Iterator[float]:
    yield from times


def test_the_meter_counts_what_is_run_under_it() -> None:
    clock = ticks(1.0, 1.5, 10.0, 10.25)
    meter = Governor(0.5, clock=lambda: next(clock)).meter

    with meter:
        pass
    with meter:
        pass

    assert meter.take() == 0.75
    assert meter.take() == 0.0
