"""Modules' activations beside the parameters: what comes now and then wipes nothing out."""

import numpy as np

from runwatch import zstd
from runwatch.rules import Evaluator, Rows, load_rules

RULES = load_rules(
    {
        "version": 1,
        "groups": [
            {
                "name": "g",
                "rules": [
                    {
                        "alert": "Spike",
                        "scope": "layer",
                        "when": "grad_norm > 5 * median(grad_norm, 8)",
                        "min_history": 6,
                    },
                    {
                        "alert": "Blown",
                        "scope": "layer",
                        "when": "act_absmax > 3 * median(act_absmax, 4)",
                        "min_history": 2,
                    },
                ],
            }
        ],
    }
)


def rows(step: int, stat: str, layers: tuple[str, ...], values: list[float]) -> Rows:
    return Rows(
        steps=np.array([step], np.int64),
        times=np.array([float(step)]),
        metric_names=(),
        metrics=np.empty((1, 0)),
        layer_names=layers,
        stat_names=(stat,),
        stats=np.array(values, np.float32).reshape(1, 1, -1),
    )


def norms(step: int, *values: float) -> Rows:
    return rows(step, "grad_norm", ("w", "b"), list(values))


def activations(step: int, *values: float) -> Rows:
    return rows(step, "act_absmax", ("block", "head"), list(values))


def fired(evaluator: Evaluator, arrived: list[Rows]) -> list[tuple[str, int]]:
    changes = [change for one in arrived for change in evaluator.observe(one)]
    return [(change.rule, change.onset_step) for change in changes]


def quiet(first: int, last: int) -> list[Rows]:
    pairs = [(norms(step, 1, 1), activations(step, 1, 2)) for step in range(first, last)]
    return [row for pair in pairs for row in pair]


def test_gradients_keep_their_history_though_activations_come_between() -> None:
    assert ("Spike", 8) in fired(Evaluator(RULES), [*quiet(0, 8), norms(8, 1, 50)])


def test_activations_have_a_history_of_their_own() -> None:
    found = fired(Evaluator(RULES), [*quiet(0, 8), norms(8, 1, 1), activations(8, 9, 2)])

    assert found == [("Blown", 8)]


def test_both_outlive_a_restart_of_the_service() -> None:
    before = Evaluator(RULES)
    fired(before, quiet(0, 8))

    after = Evaluator.restore(RULES, before.state())

    late = [norms(8, 1, 50), activations(8, 9, 2)]
    assert fired(after, late) == fired(before, late) == [("Spike", 8), ("Blown", 8)]


def test_another_model_takes_the_place_of_the_one_before() -> None:
    evaluator = Evaluator(RULES)
    fired(evaluator, quiet(0, 8))

    evaluator.observe(rows(8, "grad_norm", ("other",), [1.0]))

    state = zstd.decompress(evaluator.state())
    assert b"other" in state
    assert b"\xa1w" not in state
