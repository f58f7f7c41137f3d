"""A window over a window takes a sample where its series were recorded, however rows were cut."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.nonfinite import ABSENT_32, ABSENT_64, is_absent
from runwatch.rules import Evaluator, Rows, Rule, Transition, load_rules

NESTED = (
    "loss > max(median(loss, 3), 5)",
    "loss > prev(max(loss, 3), 4) or val_loss > median(last(val_loss), 3)",
    "count(median(loss, 2) > mean(val_loss, 3), 4) >= 2 and loss > 1",
    "count(median(loss, 2) > 1 or val_loss > 3, 4) >= 2 and loss > 1",
    "loss > first(max(loss, 2), 3) and count(age(val_loss) > 2, 5) >= 2",
    "robust_z(median(loss, 2), 6) > 1 and zscore(loss, 4) > 0 and min(step / mean(loss, 2), 4) > 1",
    "loss > 0 and max_layers(grad_norm) > 2 * median(max(max_layers(grad_norm), 3), 4)",
    "loss > median(max_layers(median(grad_norm, 3)), 4)",
)
NESTED_OF_LAYERS = (
    "grad_norm > max(median(grad_norm, 3), 4)",
    "grad_norm > median(max(grad_norm, 2) * median(loss, 2), 4)",
    "grad_norm > median(max_layers(median(grad_norm, 2)), 3) or loss > max(median(loss, 2), 4)",
)


def rules() -> tuple[Rule, ...]:
    named = [("run", when) for when in NESTED] + [("layer", when) for when in NESTED_OF_LAYERS]
    fields = [
        {"alert": f"{baseline}{index}", "scope": scope, "when": when, "min_history": 2,
         "baseline": baseline, "keep_firing_for": {"steps": 2}}
        for baseline in ("all", "clean")
        for index, (scope, when) in enumerate(named)
    ]  # fmt: skip
    return load_rules({"version": 1, "groups": [{"name": "nested", "rules": fields}]})


RULES = rules()
LAYERS = ("a", "b")

number = st.sampled_from([0.5, 1.0, 1.5, 2.0, 4.0, 9.0, math.nan])
some_of_the_run = st.tuples(number | st.none(), number | st.none())
some_of_layers = st.none() | st.tuples(number | st.none(), number | st.none())


def rows_of(
    recorded: list[tuple[tuple[float | None, ...], tuple[float | None, ...] | None]],
) -> Rows:
    """Rows of `loss` and `val_loss`, and of the gradient norm of two layers."""
    steps = np.arange(len(recorded), dtype=np.int64)
    metrics = [[ABSENT_64 if v is None else v for v in of_run] for of_run, _ in recorded]
    stats = np.full((len(recorded), 1, len(LAYERS)), ABSENT_32, np.float32)
    for row, (_, of_layers) in enumerate(recorded):
        for layer, norm in enumerate(of_layers or ()):
            if norm is not None:
                stats[row, 0, layer] = norm
    return Rows(
        steps=steps,
        times=steps.astype(np.float64),
        metric_names=("loss", "val_loss"),
        metrics=np.array(metrics, np.float64),
        layer_names=LAYERS,
        stat_names=("grad_norm",),
        stats=stats,
    )


def as_a_frame(rows: Rows) -> Rows:
    """As a frame holds them: without the columns of what none of the rows recorded."""
    held = ~is_absent(rows.metrics).all(axis=0)
    has_layers = not is_absent(rows.stats).all()
    return Rows(
        steps=rows.steps,
        times=rows.times,
        metric_names=tuple(np.array(rows.metric_names)[held].tolist()),
        metrics=rows.metrics[:, held],
        layer_names=rows.layer_names if has_layers else (),
        stat_names=rows.stat_names if has_layers else (),
        stats=rows.stats if has_layers else np.empty((rows.num_rows, 0, 0), np.float32),
    )


def told(rows: Rows, edges: list[int]) -> list[str]:
    """What is said of rows that came in parts which end at these edges."""
    evaluator = Evaluator(RULES)
    evaluator.observe(FIRST)
    found: list[Transition] = []
    for start, stop in pairwise([0, *edges, rows.num_rows]):
        if stop > start:
            found += evaluator.observe(as_a_frame(rows.between(start, stop)))
    return [repr(transition) for transition in found]


FIRST = rows_of([((None, None), (None, None))])
"""Says which layers there are, and nothing else."""


@given(
    recorded=st.lists(st.tuples(some_of_the_run, some_of_layers), min_size=2, max_size=30),
    cuts=st.sets(st.integers(1, 29), max_size=8),
)
@settings(max_examples=50, deadline=None)
def test_how_rows_are_cut_changes_nothing(
    recorded: list[tuple[tuple[float | None, ...], tuple[float | None, ...] | None]], cuts: set[int]
) -> None:
    rows = rows_of(recorded)
    whole = told(rows, [])

    assert told(rows, sorted(cut for cut in cuts if cut < rows.num_rows)) == whole
    assert told(rows, list(range(1, rows.num_rows))) == whole


@pytest.mark.parametrize("size", [1, 3, 40])
def test_rows_of_something_else_bring_no_sample(size: int) -> None:
    losses: list[float | None] = [1.0, 1.0, 1.0, 9.0, 9.0, *[None] * 20, 3.0]
    rows = rows_of([((loss, 1.0 if loss is None else None), None) for loss in losses])
    when = "step > 10 and loss > 2 * min(median(loss, 2), 4)"
    rule = {"alert": "A", "when": when, "min_history": 1}
    evaluator = Evaluator(load_rules({"version": 1, "groups": [{"name": "g", "rules": [rule]}]}))
    parts = [rows.between(start, start + size) for start in range(0, rows.num_rows, size)]

    fired = [change.step for part in parts for change in evaluator.observe(as_a_frame(part))]

    assert fired == [25]  # the window holds a median of 1, and not twenty of 9
