"""`for` over layers: each ripens by its own verdicts, and by nobody else's."""

from collections.abc import Mapping

import numpy as np

from runwatch.nonfinite import ABSENT_32
from runwatch.rules import Evaluator, Rows, load_rules

ABSENT = float(ABSENT_32)
RULE = {
    "alert": "A",
    "scope": "layer",
    "when": "grad_norm > 5",
    "for": {"steps": 3},
    "annotations": {"summary": "{layers}"},
}


def told(norms: Mapping[str, list[float]]) -> list[tuple[int, str, str]]:
    """Each transition's step, state and layers."""
    rules = load_rules({"version": 1, "groups": [{"name": "g", "rules": [RULE]}]})
    num_rows = len(next(iter(norms.values())))
    rows = Rows(
        steps=np.arange(num_rows, dtype=np.int64),
        times=np.arange(num_rows, dtype=np.float64),
        metric_names=(),
        metrics=np.empty((num_rows, 0)),
        layer_names=tuple(norms),
        stat_names=("grad_norm",),
        stats=np.array([list(norms.values())], np.float32).transpose(2, 0, 1),
    )
    transitions = Evaluator(rules).observe(rows)
    return [(one.step, one.state.value, one.summary) for one in transitions if one.rule == "A"]


def test_a_layer_of_which_no_row_tells_any_more_does_not_ripen() -> None:
    norms = {"frozen": [9.0, *[ABSENT] * 9], "head": [1.0] * 10}

    assert told(norms) == [(0, "pending", "frozen")]


def test_a_layer_that_is_judged_now_and_then_ripens_where_it_is() -> None:
    norms = {"rare": [9.0, *[ABSENT] * 5, 9.0], "head": [1.0] * 7}

    assert told(norms) == [(0, "pending", "rare"), (6, "firing", "rare")]


def test_a_layer_that_began_later_ripens_in_its_own_time() -> None:
    norms = {"silent": [9.0, *[ABSENT] * 6], "head": [1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0]}

    assert told(norms) == [(0, "pending", "silent"), (5, "firing", "head, silent")]


def test_what_has_fired_stands_while_no_row_tells_of_it() -> None:
    norms = {"frozen": [*[9.0] * 4, *[ABSENT] * 4], "head": [1.0] * 8}

    assert told(norms) == [(0, "pending", "frozen"), (3, "firing", "frozen")]
