"""What rules know of a loss is forgotten where a program says that it trains something else."""

from dataclasses import replace

import numpy as np
import pytest
from tests.core.rules.builtin_pack import pack
from tests.core.rules.test_evaluator import rows_of, rules_of, told

from runwatch.rules import Evaluator, Rows, Transition
from runwatch.rules.objectives import Stage
from runwatch.rules.saving import dump, load

RULES = rules_of(
    {"alert": "Doubled", "when": "loss > 2 * median(loss, 16)", "min_history": 8},
    {"alert": "Risen", "when": "loss > 3 * min(loss, 256)", "min_history": 8},
    {"alert": "Faster", "when": "lr > 2 * max(lr, 16)", "min_history": 8},
)
LOSSES = [1.0] * 40 + [9.0] * 40


def rows(losses: list[float], **numbers: list[float]) -> Rows:
    metrics = np.column_stack([losses, *numbers.values()])
    return replace(rows_of(losses), metric_names=("loss", *numbers), metrics=metrics)


def alerts(losses: list[float], **numbers: list[float]) -> set[str]:
    return {t.rule for t in Evaluator(RULES).observe(rows(losses, **numbers))}


def test_a_loss_is_not_measured_against_that_of_another_objective() -> None:
    assert alerts(LOSSES, objective=[1.0] * 80) == {"Doubled", "Risen"}
    assert alerts(LOSSES, objective=[1.0] * 40 + [2.0] * 40) == set()


def test_a_new_objective_has_a_past_of_its_own_after_a_few_rows() -> None:
    assert alerts([*LOSSES, 99.0], objective=[1.0] * 40 + [2.0] * 41) == {"Doubled", "Risen"}


def test_what_the_objective_does_not_change_is_remembered() -> None:
    lr = [0.1] * 40 + [0.5] * 40

    assert alerts([1.0] * 80, lr=lr, objective=[1.0] * 40 + [2.0] * 40) == {"Faster"}


@pytest.mark.parametrize(
    "name", ["stage", "task_id", "train/kl_weight", "beta", "curriculum_step", "aux_loss_weight"]
)
def test_the_names_under_which_programs_log_it_are_known(name: str) -> None:
    assert alerts(LOSSES, **{name: [1.0] * 40 + [2.0] * 40}) == set()


@pytest.mark.parametrize("name", ["loss_scale", "weight_decay", "beta1", "class_weight", "epoch"])
def test_other_numbers_leave_the_past_as_it_is(name: str) -> None:
    assert alerts(LOSSES, **{name: [1.0] * 40 + [2.0] * 40}) == {"Doubled", "Risen"}


def test_a_weight_that_grows_without_a_stop_is_another_objective_at_each_tenth() -> None:
    weights = [0.01 * row for row in range(400)]

    assert alerts([1.0 + 20 * weight for weight in weights]) == {"Risen"}
    assert alerts([1.0 + 20 * weight for weight in weights], kl_weight=weights) == set()


def test_a_weight_that_hardly_moves_is_the_same_objective() -> None:
    assert alerts(LOSSES, kl_weight=[1.0] * 40 + [1.05] * 40) == {"Doubled", "Risen"}


def test_tasks_that_take_turns_row_by_row_are_one_objective() -> None:
    assert alerts(LOSSES, task=[0.0, 1.0] * 40) == {"Doubled", "Risen"}


def test_tasks_that_take_turns_in_short_blocks_do_not_blind_the_rules() -> None:
    tasks = ([0.0] * 12 + [1.0] * 12) * 12
    losses = [1.0 + 0.2 * task for task in tasks]

    assert alerts([*losses[:-6], *[9.0] * 6], task=tasks) == {"Doubled", "Risen"}


def test_tasks_that_take_turns_in_long_blocks_are_objectives_of_their_own() -> None:
    tasks = ([0.0] * 150 + [1.0] * 150) * 2

    assert alerts([1.0 + 8.0 * task for task in tasks], task=tasks) == set()


def test_an_objective_that_is_logged_only_where_it_begins_lasts() -> None:
    logged = [1.0, *[np.nan] * 39, 2.0, *[np.nan] * 39]

    assert alerts(LOSSES, objective=logged) == set()


def test_a_new_attempt_begins_with_any_objective() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows(LOSSES[:40], objective=[1.0] * 40))
    later = rows(LOSSES[20:], objective=[2.0] * 60)

    transitions = evaluator.observe(replace(later, attempt=2))
    assert {t.rule for t in transitions} == {"Doubled", "Risen"}


@pytest.mark.parametrize("first", [20, 36])
def test_an_objective_that_a_rollback_undoes_begins_anew_when_it_comes_again(first: int) -> None:
    whole = rows(LOSSES, objective=[1.0] * 40 + [2.0] * 40)
    evaluator = Evaluator(RULES)
    evaluator.observe(whole)
    again = replace(whole.between(first, 80), segment=1)

    assert evaluator.observe(again.between(0, 1)) == []
    evaluator = Evaluator.restore(RULES, evaluator.state())
    assert evaluator.observe(again.between(1, again.num_rows)) == []


def test_a_change_soon_after_a_rollback_is_another_objective() -> None:
    whole = rows(LOSSES, objective=[1.0] * 40 + [2.0] * 40)
    evaluator = Evaluator(RULES)
    evaluator.observe(whole.between(0, 40))

    assert evaluator.observe(replace(whole.between(38, 80), segment=1)) == []


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.2])
def test_a_number_that_scatters_is_one_objective(spread: float) -> None:
    """As the mean difficulty of a batch, or a loss that is logged by the name of `objective`."""
    noise = np.random.default_rng(1).normal(1.0, spread, 800)
    losses = (np.array([1.0] * 600 + [9.0] * 200) * noise).tolist()

    assert "Risen" in alerts(losses, difficulty=(5.0 * noise[::-1]).tolist())
    assert "Risen" in alerts(losses, objective=losses)


def test_a_weight_that_rounding_moves_is_a_stage() -> None:
    weights = [0.3, 0.1 + 0.2] * 20 + [0.6] * 40

    assert alerts(LOSSES, kl_weight=weights) == set()


def test_a_weight_that_goes_up_and_down_in_cycles_is_not_noise() -> None:
    cycle = [0.005 * row for row in range(200)]
    weights = [*cycle, *reversed(cycle)] * 2

    assert alerts([1.0 + 20 * weight for weight in weights], kl_weight=weights) == set()


def test_a_state_saved_before_moves_were_counted_goes_on() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows(LOSSES[:40], kl_weight=[0.5] * 40))
    memory = load(evaluator.state())
    stage = {name: getattr(memory.objectives["kl_weight"], name) for name in ("value", "num_rows")}
    old = dump(replace(memory, objectives={"kl_weight": Stage(**stage)}))
    later = rows(LOSSES, kl_weight=[0.5] * 40 + [1.0] * 40).between(40, 80)

    assert Evaluator.restore(RULES, old).observe(later) == []


@pytest.mark.parametrize("size", [1, 7, 40])
def test_frames_and_a_restart_of_the_service_change_nothing(size: int) -> None:
    weights = [0.1, 0.2] * 4 + [0.01 * row for row in range(32)] + [1.0] * 40 + [3.0] * 40
    whole = rows([*LOSSES, *LOSSES[:36], 4.0, 4.0, 4.0, 4.0], kl_weight=weights)
    at_once = Evaluator(RULES).observe(whole)
    evaluator = Evaluator(RULES)
    cut: list[Transition] = []
    for start in range(0, whole.num_rows, size):
        evaluator = Evaluator.restore(RULES, evaluator.state())
        cut += evaluator.observe(whole.between(start, start + size))

    assert told(cut) == told(at_once) != []


def test_the_built_in_rules_page_nobody_for_another_loss_that_was_announced() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(1.0, 0.05, 600)
    losses = [*(np.linspace(4.0, 1.0, 300) * noise[:300]), *(30.0 * noise[300:])]
    objective = [1.0] * 300 + [2.0] * 300

    unsaid = {t.rule for t in Evaluator(pack()).observe(rows(losses))}
    said = {t.rule for t in Evaluator(pack()).observe(rows(losses, objective=objective))}
    assert ("LossDivergence" in unsaid, said) == (True, set())
