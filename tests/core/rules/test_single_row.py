"""One row at a time, a rule of the run is compiled; many at a time, it is read in arrays. Both say
the same, to the last bit of what they remember."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.core.rules.builtin_pack import pack

from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Evaluator, Rows, Rule, Transition, load_rules

NAMES = ("loss", "grad_norm", "lr", "loss_scale", "clipped", "val_loss", "gpu_mem")
NUM_ROWS = 120

CONDITIONS = (
    "loss > 2 * median(loss, 9) or not (grad_norm < mean(grad_norm, 5))",
    "robust_z(loss, 7) > 2 or zscore(grad_norm, 6) < -1 or isnan(val_loss)",
    "quantile(loss, 0.3, 8) > loss or mad(delta(loss), 6) > 0.5 * std(loss, 6)",
    "ewma(loss, 8) > last(val_loss) and age(val_loss) >= 3",
    "count(loss > median(loss, 4), 6) >= 4 or slope(grad_norm, 5) > 0.3",
    "where(clipped > 0, -log10(loss), abs(lr)) < min(loss, 4) - max(grad_norm, 4)",
    "first(loss, 4) < mean(loss, 4) and (isinf(grad_norm) or isfinite(loss * 1e308))",
    "median(loss_scale, 3) <= loss_scale and loss > 0 and step > 30",
)
WITHOUT_A_BASELINE = (
    "loss != prev(loss, 3) and loss / (grad_norm - grad_norm) > 1",
    "delta(loss) > 0 and last(grad_norm) != age(lr)",
)


def own_rules() -> tuple[Rule, ...]:
    clean = {"baseline": "clean", "relearn_after": 6}
    kinds: list[tuple[str, str, dict[str, object]]] = [
        *(("All", condition, {}) for condition in CONDITIONS + WITHOUT_A_BASELINE),
        *(("Clean", condition, dict(clean)) for condition in CONDITIONS),
    ]
    rules = [
        {"alert": f"{name}{index}", "when": condition, "min_history": 3,
         "for": {"steps": 1}, "keep_firing_for": {"steps": 2}, **fields}
        for index, (name, condition, fields) in enumerate(kinds)
    ]  # fmt: skip
    return load_rules({"version": 1, "groups": [{"name": "own", "rules": rules}]})


def rows_with_everything(seed: int, first_step: int, segment: int) -> Rows:
    """Values that scatter, repeat, jump, break, and now and then were not recorded."""
    rng = np.random.default_rng(seed)
    values: NDArray[np.float64] = rng.lognormal(0.0, 0.4, (NUM_ROWS, len(NAMES)))
    values[rng.random(values.shape) < 0.05] *= 20
    values[rng.random(values.shape) < 0.05] *= -1
    values[rng.random(values.shape) < 0.02] = np.nan
    values[rng.random(values.shape) < 0.02] = np.inf
    values[rng.random(values.shape) < 0.15] = 1.0
    values[rng.random(values.shape) < 0.1] = ABSENT_64
    steps = first_step + np.arange(NUM_ROWS, dtype=np.int64)
    return Rows(
        steps=steps,
        times=np.asarray(steps * 0.5, np.float64),
        metric_names=NAMES,
        metrics=values,
        layer_names=(),
        stat_names=(),
        stats=np.empty((NUM_ROWS, 0, 0), np.float32),
        segment=segment,
    )


def with_layers(rows: Rows, seed: int) -> Rows:
    """The same of a run with three layers, whose values now and then were not recorded."""
    rng = np.random.default_rng(seed)
    stats = ("grad_norm", "param_norm", "update_ratio", "zero_frac")
    values = rng.lognormal(0.0, 0.4, (rows.num_rows, len(stats), 3)).astype(np.float32)
    values[rng.random(values.shape) < 0.03] *= 50
    values[rng.random(values.shape) < 0.05] = ABSENT_32
    return replace(rows, layer_names=("a", "b", "c"), stat_names=stats, stats=values)


def judged(rules: Sequence[Rule], parts: Sequence[Rows], size: int) -> tuple[list[str], bytes]:
    evaluator = Evaluator(rules)
    told: list[Transition] = []
    for rows in parts:
        for start in range(0, rows.num_rows, size):
            told += evaluator.observe(rows.between(start, start + size))
    return [repr(transition) for transition in told], evaluator.state()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("source", ["own", "built in"])
def test_row_by_row_and_in_blocks_are_the_same_to_the_last_bit(source: str, seed: int) -> None:
    rules = own_rules() if source == "own" else pack()
    parts = [rows_with_everything(seed, 0, 0), rows_with_everything(seed + 50, 80, 1)]

    told, state = judged(rules, parts, 1)

    assert told
    assert (told, state) == judged(rules, parts, 3)
    assert (told, state) == judged(rules, parts, 64)


@pytest.mark.parametrize("seed", range(2))
def test_rules_of_the_run_and_of_layers_share_windows_to_the_last_bit(seed: int) -> None:
    rules = pack()
    parts = [with_layers(rows_with_everything(seed, 0, 0), seed)]

    told, state = judged(rules, parts, 1)

    assert told
    assert (told, state) == judged(rules, parts, 3)
    assert (told, state) == judged(rules, parts, 64)
