"""Where a number that is not finite began, where that was not in a gradient."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch.rules.block import Block
from runwatch.rules.nonfinite_rule import is_loss, is_of_evaluation
from runwatch.rules.windows import Bools


@dataclass(frozen=True, slots=True)
class Origin:
    """Where it began, where that was not in a gradient."""

    layer: int | None
    """Its place among the layers; None for what has no layer."""
    words: str
    """As the alert says it, with a placeholder for the layer's name."""


LOSS_BROKEN_ON: Final = "loss_broken_on"
"""A metric of rank 0: the rank whose loss was not finite, where its own was."""
_PARAMETER: Final = "the parameter {layer}"
_AFTER_SOUND_PARAMETERS: Final = (
    "the loss: no parameter was broken before it, so an activation or the data"
)
_AFTER_ANYTHING: Final = (
    "the loss: an activation, the data, or a parameter whose norm was not recorded"
)


def origin_of(block: Block, row: int) -> Origin | None:
    """What broke before the gradients did. None where they broke first, or nobody knows.

    A parameter that is not finite breaks the loss, and such a loss breaks every gradient: the
    layers whose gradients broke then say nothing about where it began. A parameter's norm is of
    before the step, so the step by a broken gradient does not show in it. Where optimizers take
    turns a loss may be of after a step of the other's, which no norm of this row shows: a critic
    that broke breaks the generator's loss.
    """
    norms_L, known_L = _stat(block, row, "param_norm")
    broken = np.flatnonzero(known_L & ~np.isfinite(norms_L))
    if broken.size:
        return Origin(int(broken[0]), _PARAMETER)
    losses = _broken_losses(block, row)
    if not losses:
        return _origin_elsewhere(block, row)
    if _takes_turns(block, row):
        return Origin(None, _after_other_steps(losses))
    gradients_L, _ = _stat(block, row, "grad_norm")
    has_gradient_L = ~is_absent(gradients_L)
    all_read = bool(known_L.any() and known_L[has_gradient_L].all())
    return Origin(None, _AFTER_SOUND_PARAMETERS if all_read else _AFTER_ANYTHING)


def _origin_elsewhere(block: Block, row: int) -> Origin | None:
    """Another rank whose loss broke, and by the reduction of gradients this one's."""
    rank = _metric(block, row, LOSS_BROKEN_ON)
    if not math.isfinite(rank):
        return None
    return Origin(None, f"the loss of rank {int(rank)}: an activation or the data there")


def _stat(block: Block, row: int, name: str) -> tuple[NDArray[np.float32], Bools]:
    """(L,) a stat's values, and which of them are recorded."""
    column = block.rows.stat_columns.get(name)
    if column is None:
        return np.full(block.num_layers, ABSENT_32), np.zeros(block.num_layers, np.bool_)
    values_L = np.ascontiguousarray(block.rows.stats[row, column, :])
    return values_L, ~is_absent(values_L)


def _broken_losses(block: Block, row: int) -> list[str]:
    """The losses of the training that are not finite."""
    metrics = block.rows.metrics[row]
    return [
        name
        for column, name in enumerate(block.rows.metric_names)
        if is_loss(name)
        and not is_of_evaluation(name)
        and not is_absent(metrics[[column]])[0]
        and not np.isfinite(metrics[column])
    ]


def _takes_turns(block: Block, row: int) -> bool:
    """Whether optimizers take turns within the row, so that one's step was done as the next one's
    loss was made."""
    num_steps = _metric(block, row, "optimizer_steps")
    return _metric(block, row, "alternating") > 0 and not num_steps <= 1


def _after_other_steps(losses: list[str]) -> str:
    # The words are a template for `str.format`, and the names are the user's.
    names = " and ".join(losses).replace("{", "{{").replace("}", "}}")
    which = f"the losses {names}, of which one may have broken the other" if losses[1:] else names
    return f"{which}: an activation, the data, or an optimizer's step earlier in this row"


def _metric(block: Block, row: int, name: str) -> float:
    """NaN where it is not recorded."""
    column = block.rows.metric_columns.get(name)
    return math.nan if column is None else float(block.rows.metrics[row, column])
