"""What programs call the numbers that rules read as `val_loss` and `reward`."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

USUAL_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "val_loss": (
        "val_loss", "eval_loss", "eval/loss", "val/loss", "valid_loss", "validation_loss",
        "valid/loss", "validation/loss", "loss/val", "loss/valid", "loss/validation", "loss/eval",
        "val_loss_epoch", "loss_val", "val_total_loss", "valloss", "avg_val_loss",
        "average_val_loss", "average_validation_loss", "dev_loss", "test_loss", "test/loss",
        "testloss", "metrics/val_loss", "val._loss", "valid._loss", "eval/crossentropyloss",
    ),
    "reward": (
        "reward", "train/reward", "mean_reward", "reward_mean", "episode_reward", "episode_return",
        "ep_rew_mean", "rollout/ep_rew_mean", "eprewmean", "episode_reward_mean", "averagereturn",
        "average_return", "episodic_return", "charts/episodic_return", "train/episode_reward",
    ),
}  # fmt: skip
"""In order of preference."""


@lru_cache(1024)
def metric_of(name: str) -> str | None:
    """The metric that a name stands for; None if it is none of these."""
    form = normal_form(name)
    return next((metric for metric, names in USUAL_NAMES.items() if form in names), None)


def normal_form(name: str) -> str:
    """A name in lower case, with underscores for blanks."""
    return re.sub(r"\s+", "_", name.strip().lower())
