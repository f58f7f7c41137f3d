"""What the built-in rules cost, in CPU time: live, over run metrics alone, and over many layers.

    python -m benchmarks.rules [--rows 100000] [--layer-rows 5000]

Healthy random series, so that what is measured is the price of watching a run that is well. Rows
of 300 layers are measured over `--layer-rows` of them and told for 100 000.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib import resources

import numpy as np
import yaml
from benchmarks.harness import machine, markdown_table, median_interval
from numpy.typing import NDArray

from runwatch.rules import Evaluator, Rows, Rule, load_rules

STATS = ("grad_norm", "grad_absmax", "nonfinite", "zero_frac", "param_norm", "update_ratio")
LIVE_LAYERS, LIVE_WARM_ROWS, LIVE_ROWS = 500, 600, 400
BLOCK_LAYERS, FRAME_ROWS, TOLD_ROWS = 300, 1024, 100_000
FIRST_STEP = 1000
"""Past the steps before which some rules do not look."""


def built_in_rules() -> tuple[Rule, ...]:
    text = (resources.files("runwatch_server") / "rules" / "builtin.yaml").read_text()
    return load_rules(yaml.safe_load(text))


def healthy_run(num_rows: int, num_layers: int) -> Rows:
    """A loss that falls with noise, gradients that scatter by factors, layers that are well."""
    rng = np.random.default_rng(0)
    rows_T = np.arange(num_rows)
    metrics: dict[str, NDArray[np.float64]] = {
        "loss": 3.0 + 8.0 * np.exp(-rows_T / 3000) + rng.normal(0.0, 0.05, num_rows),
        "grad_norm": rng.lognormal(0.0, 0.3, num_rows),
        "lr": np.full(num_rows, 1e-3),
        "loss_scale": np.full(num_rows, 65536.0),
    }
    return Rows(
        steps=FIRST_STEP + rows_T.astype(np.int64),
        times=np.asarray(rows_T * 0.1, np.float64),
        metric_names=tuple(metrics),
        metrics=np.column_stack(list(metrics.values())),
        layer_names=tuple(f"blocks.{layer}" for layer in range(num_layers)),
        stat_names=STATS if num_layers else (),
        stats=_layers(rng, num_rows, num_layers),
    )


def _layers(rng: np.random.Generator, num_rows: int, num_layers: int) -> NDArray[np.float32]:
    if not num_layers:
        return np.empty((num_rows, 0, 0), np.float32)
    stats_TSL = np.zeros((num_rows, len(STATS), num_layers), np.float32)
    shape_TL = (num_rows, num_layers)
    stats_TSL[:, STATS.index("grad_norm")] = rng.lognormal(0.0, 0.3, shape_TL)
    stats_TSL[:, STATS.index("grad_absmax")] = rng.lognormal(-3.0, 0.3, shape_TL)
    stats_TSL[:, STATS.index("param_norm")] = 5.0
    stats_TSL[:, STATS.index("update_ratio")] = rng.lognormal(-7.0, 0.2, shape_TL)
    return stats_TSL


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def live(rules: tuple[Rule, ...]) -> str:
    """Milliseconds a step, one row a call, as rows come from a running trainer."""
    rows = healthy_run(LIVE_WARM_ROWS + LIVE_ROWS, LIVE_LAYERS)
    evaluator = Evaluator(rules)
    evaluator.observe(rows.between(0, LIVE_WARM_ROWS))
    arriving = [rows.between(row, row + 1) for row in range(LIVE_WARM_ROWS, rows.num_rows)]
    took_ms = [1e3 * cpu_seconds(partial(evaluator.observe, row)) for row in arriving]
    middle, low, high = median_interval(took_ms)
    return f"{middle:.2f} ms a step (95 %: {low:.2f} to {high:.2f})"


def of_the_run(rules: tuple[Rule, ...], num_rows: int) -> str:
    rows = healthy_run(num_rows, 0)
    took_s = min(cpu_seconds(lambda: Evaluator(rules).observe(rows)) for _ in range(3))
    return f"{took_s:.2f} s"


def of_layers(rules: tuple[Rule, ...], num_rows: int) -> str:
    rows = healthy_run(num_rows, BLOCK_LAYERS)
    evaluator = Evaluator(rules)
    frames = [
        rows.between(start, start + FRAME_ROWS) for start in range(0, rows.num_rows, FRAME_ROWS)
    ]
    took_s = sum(cpu_seconds(partial(evaluator.observe, frame)) for frame in frames)
    return f"{took_s * TOLD_ROWS / num_rows:.0f} s for {TOLD_ROWS}"


def main() -> None:
    options = _options()
    rules = built_in_rules()
    print(f"\n{machine()}; {len(rules)} rules and NonFinite; CPU time\n")
    table = [
        (f"live, {LIVE_LAYERS} layers, one row a call", live(rules), "2 ms a step"),
        (f"{options.rows} rows of run metrics", of_the_run(rules, options.rows), "2 s"),
        (
            f"{BLOCK_LAYERS} layers, {options.layer_rows} rows in frames of {FRAME_ROWS}",
            of_layers(rules, options.layer_rows),
            f"60 s for {TOLD_ROWS}",
        ),
    ]
    print(markdown_table(("what", "measured", "aim"), table))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--layer-rows", type=int, default=5_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
