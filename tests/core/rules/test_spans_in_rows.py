"""`for` and `keep_firing_for` in rows: what a log with a row at every tenth step needs."""

from dataclasses import replace

import numpy as np
import pytest
from tests.core.rules.test_evaluator import rows_of, rules_of, told

from runwatch.nonfinite import ABSENT_64
from runwatch.rules import Evaluator, Rows, Transition

RULES = rules_of(
    {"alert": "High", "when": "loss > 5", "for": {"rows": 2}, "keep_firing_for": {"rows": 4}}
)
ABSENT = float(ABSENT_64)


def sparse(losses: list[float], steps_a_row: int = 10) -> Rows:
    rows = rows_of(losses)
    return replace(rows, steps=rows.steps * steps_a_row)


def test_a_condition_has_held_after_so_many_rows_whatever_steps_lie_between() -> None:
    transitions = Evaluator(RULES).observe(sparse([1.0, 9.0, 9.0, 9.0]))

    assert told(transitions) == [("High", "pending", 10), ("High", "firing", 30)]


def test_what_comes_back_within_so_many_rows_is_the_same_alert() -> None:
    losses = [9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    transitions = Evaluator(RULES).observe(sparse(losses))

    assert [(t.state.value, t.step) for t in transitions] == [
        ("pending", 0),
        ("firing", 20),
        ("recovering", 30),
        ("firing", 60),
        ("recovering", 70),
        ("resolved", 110),
    ]


def test_a_row_that_tells_a_rule_nothing_is_none_of_its_rows() -> None:
    losses = [9.0, ABSENT, ABSENT, 9.0, ABSENT, 9.0]

    assert told(Evaluator(RULES).observe(sparse(losses)))[-1] == ("High", "firing", 50)


def test_a_layer_s_rows_are_counted_from_its_own_beginning() -> None:
    (rule,) = rules_of(
        {"alert": "A", "scope": "layer", "when": "grad_norm > 5", "for": {"rows": 2}}
    )
    norms = [[9.0, 1.0, 1.0], [9.0, 9.0, 1.0], [1.0, 9.0, 1.0], [1.0, 9.0, 1.0]]
    transitions = Evaluator((rule,)).observe(rows_of([1.0] * 4, norms))

    assert [(t.state.value, t.step, t.onset_step) for t in transitions][-1] == ("firing", 3, 1)


def test_a_rollback_lets_rows_count_anew_for_what_was_recovering() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(sparse([9.0, 9.0, 9.0, 1.0, 1.0, 1.0]))
    again = replace(sparse([1.0] * 6), segment=1)

    assert told(evaluator.observe(again)) == [("High", "resolved", 30)]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_frames_and_a_restart_change_nothing(size: int) -> None:
    whole = sparse([float(loss) for loss in np.tile([9, 9, 9, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1], 3)])
    at_once = Evaluator(RULES)
    wanted = told(at_once.observe(whole))
    evaluator = Evaluator(RULES)
    found: list[Transition] = []
    for start in range(0, whole.num_rows, size):
        evaluator = Evaluator.restore(RULES, evaluator.state())
        found += evaluator.observe(whole.between(start, start + size))

    assert (told(found), evaluator.state()) == (wanted, at_once.state())
