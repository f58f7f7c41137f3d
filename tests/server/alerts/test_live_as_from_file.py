"""A log that is posted live, row by row, raises what `runwatch backtest FILE` raises on it."""

import csv
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.server.harness import Api

from runwatch.nonfinite import JsonNumber, to_json
from runwatch.vocabulary import RunId
from runwatch_server.cli.backtest import judge
from runwatch_server.cli.rule_files import BUILTIN, read_rules
from runwatch_server.importing import read_run_log

pytestmark = pytest.mark.anyio

NUM_ROWS = 400
BREAKS_AT = 300
Series = NDArray[np.float64]
Log = dict[str, Series]
Raised = set[tuple[str, int, str]]
"""Rule, step at which it fired, severity."""


def falling(seed: int = 0) -> Series:
    """A loss that falls with noise, as that of a sound training does."""
    noise = np.random.default_rng(seed).normal(1.0, 0.02, NUM_ROWS)
    return (1.0 + 3.0 * np.exp(-np.arange(NUM_ROWS) / 80.0)) * noise


def scattered(seed: int = 1) -> Series:
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.1, NUM_ROWS))


def changed(series: Series, factor: float, last: int = NUM_ROWS) -> Series:
    """The series, multiplied from the fault on."""
    series = series.copy()
    series[BREAKS_AT:last] *= factor
    return series


def rising() -> Series:
    """A loss that rises for good, slowly: a fault, unless the loss has no level."""
    return falling() * np.interp(np.arange(NUM_ROWS), [0, 150, NUM_ROWS], [1.0, 1.0, 5.0])


HEALTHY: dict[str, Log] = {
    "sound": {"training_loss": falling(), "gnorm": scattered()},
    "sound beside parts": {"train/loss": falling(), "train/aux_loss": falling(2)},
    "adversaries": {
        "training_loss": rising(),
        "loss_D": falling(2),
        "loss_G": rising(),
    },
    "rewards": {"train/loss": rising(), "rollout/ep_rew_mean": falling(4)},
    "returns of a policy": {
        "lm_loss": rising(),
        "policy_loss": falling(2),
        "return": falling(4),
    },
}
BROKEN: dict[str, tuple[str, Log]] = {
    "NaN": ("NonFinite", {"training_loss": changed(falling(), math.nan)}),
    "NaN in one word": ("NonFinite", {"trainloss": changed(falling(), math.nan)}),
    "NaN in an evaluation": (
        "NonFiniteEvaluation",
        {"train_loss": falling(), "valloss": changed(falling(2), math.nan)},
    ),
    "infinite gradients": (
        "NonFinite",
        {"training_loss": falling(), "gnorm": changed(scattered(), math.inf, BREAKS_AT + 3)},
    ),
    "rise": ("LossRising", {"training_loss": rising()}),
    "jump": ("LossJump", {"train/loss": changed(falling(), 2.0)}),
    "jump of the only loss": ("LossJump", {"avg loss so far": changed(falling(), 2.0)}),
    "explosion": ("LossExplosion", {"total_loss": changed(falling(), 20.0)}),
    "gradient": (
        "GradientSpike",
        {"Loss": falling(), "gradient norm": changed(scattered(), 40.0, BREAKS_AT + 1)},
    ),
    "reward": (
        "RewardCollapse",
        {"policy_loss": falling(), "ep_rew_mean": changed(200.0 - 30.0 * falling(5), 0.05)},
    ),
}


@pytest.mark.parametrize("label", HEALTHY)
async def test_a_healthy_log_raises_nothing_live(api: Api, tmp_path: Path, label: str) -> None:
    assert await raised_live(api, HEALTHY[label]) == set()
    assert raised_from_file(tmp_path, HEALTHY[label]) == set()


@pytest.mark.parametrize("label", BROKEN)
async def test_a_broken_log_raises_live_what_it_raises_from_a_file(
    api: Api, tmp_path: Path, label: str
) -> None:
    rule, log = BROKEN[label]

    live = await raised_live(api, log)

    assert rule in {name for name, _, _ in live}
    assert live == raised_from_file(tmp_path, log)


async def test_the_name_that_was_chosen_first_is_kept(api: Api) -> None:
    run_id = await api.new_run()
    await post(api, run_id, 1, 0, {"train_loss": falling()[:BREAKS_AT]})
    await post(api, run_id, 2, BREAKS_AT, {"lm_loss": 9.0 * falling()[BREAKS_AT:]})

    assert await alerts_of(api, run_id) == set()


async def raised_live(api: Api, log: Log, rows_a_frame: int = 25) -> Raised:
    run_id = await api.new_run()
    for seq, first in enumerate(range(0, NUM_ROWS, rows_a_frame), start=1):
        part = {name: series[first : first + rows_a_frame] for name, series in log.items()}
        await post(api, run_id, seq, first, part)
    return await alerts_of(api, run_id)


async def post(api: Api, run_id: RunId, seq: int, first_step: int, metrics: Log) -> None:
    body = {
        "attempt": 1,
        "seq": seq,
        "first_step": first_step,
        "metrics": {name: numbers(series) for name, series in metrics.items()},
    }
    await api.json("POST", f"/runs/{run_id}/frames", json=body)


async def alerts_of(api: Api, run_id: RunId) -> Raised:
    await api.until_judged(run_id)
    found = await api.json("GET", "/alerts", params={"run_id": run_id})
    return {
        (one["rule"], one["firing_step"], one["severity"])
        for one in found["alerts"]
        if one["firing_step"] is not None
    }


def raised_from_file(folder: Path, log: Log) -> Raised:
    path = folder / "log.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *log])
        writer.writerows(zip(range(NUM_ROWS), *(rows_of(log.values())), strict=True))
    rules = [filed.rule for filed in read_rules(BUILTIN)]
    found = judge("log", read_run_log(path), rules).alerts
    return {(one.alert, one.firing_step, one.severity) for one in found}


def rows_of(columns: Iterable[Series]) -> list[list[str]]:
    as_text: Callable[[float], str] = repr
    return [[as_text(float(value)) for value in column] for column in columns]


def numbers(series: Series) -> list[JsonNumber]:
    return [to_json(float(value)) for value in series]
