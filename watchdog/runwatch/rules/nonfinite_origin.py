"""Where a number that is not finite began, and what followed, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch.number_texts import count, counted
from runwatch.rules.block import Block
from runwatch.rules.nonfinite_rule import is_loss, is_of_evaluation
from runwatch.rules.windows import Bools, Floats, Ints
from runwatch.series import GUARDED_METRICS


@dataclass(frozen=True, slots=True)
class Origin:
    """Where it began."""

    words: str
    """What broke, and how."""
    layer: str | None = None
    """None for what has no layer."""
    why: str = ""
    """What is known of the reason, to be read after what broke and when."""


LOSS_BROKEN_ON: Final = "loss_broken_on"
"""A metric of rank 0: the rank whose loss was not finite, where its own was."""
_UNKNOWN: Final = "NaN or infinite"
_AFTER_SOUND_PARAMETERS: Final = "no parameter was broken before it, so an activation or the data"
_AFTER_ANYTHING: Final = "an activation, the data, or a parameter whose norm was not recorded"


def origin_of(block: Block, row: int, first_layer: str | None) -> Origin | None:
    """What broke first; `first_layer` is the layer to blame if that was a gradient. None if nothing
    in the row tells.

    A parameter that is not finite breaks the loss, and such a loss breaks every gradient: the
    layers whose gradients broke then say nothing about where it began. A parameter's norm is of
    before the step, so the step by a broken gradient does not show in it. Where optimizers take
    turns a loss may be of after a step of the other's, which no norm of this row shows: a critic
    that broke breaks the generator's loss.
    """
    norms_L, known_L = _stat(block, row, "param_norm")
    broken = np.flatnonzero(known_L & ~np.isfinite(norms_L))
    if broken.size:
        layer = block.rows.layer_names[int(broken[0])]
        kind = kind_of(float(norms_L[broken[0]]))
        return Origin(f"{layer}: parameter {kind}{_on_rank(block)}", layer)
    losses = _broken(block, row, evaluated=False)
    if losses:
        return Origin(_words_of_losses(losses) + _on_rank(block), None, _why(block, row, losses))
    rank = _metric(block, row, LOSS_BROKEN_ON)
    if math.isfinite(rank):
        words = f"loss of rank {int(rank)} {_UNKNOWN}"
        return Origin(words, None, "an activation or the data there")
    if first_layer is not None:
        return Origin(_words_of_gradient(block, row, first_layer), first_layer)
    return _origin_of_run(block, row)


def origin_of_evaluation(block: Block, row: int) -> Origin | None:
    """Which losses of an evaluation broke."""
    losses = _broken(block, row, evaluated=True)
    return Origin(_words_of_losses(losses) + _on_rank(block)) if losses else None


def spread_of(
    names: Sequence[str], failing_C: Bools, onset_steps_C: Ints, onset: int, first: str | None
) -> str:
    """Which other layers broke, with the first or after it; names of columns that are no layers are
    empty."""
    columns = [int(c) for c in np.flatnonzero(failing_C) if names[int(c)] not in ("", first)]
    later = [int(onset_steps_C[c]) for c in columns if onset_steps_C[c] > onset]
    num_with = len(columns) - len(later)
    more = "" if first is None else "more "
    with_it = f", {counted(num_with, f'{more}layer')} with it" if num_with else ""
    if not later:
        return with_it
    more = "" if first is None and not num_with else "more "
    when = "at" if min(later) == max(later) else "by"
    return f"{with_it}, then {counted(len(later), f'{more}layer')} {when} step {count(max(later))}"


def kind_of(value: float) -> str:
    """What a number is that is not finite."""
    return "NaN" if math.isnan(value) else "infinite"


def broken_part(num_nonfinite: float, num_elements: int | None, norm: float) -> str:
    """How many elements of a gradient are not finite, in brackets; empty if nobody counted them: a
    reader whose norm is not finite itself says 1 for any number."""
    if not math.isfinite(num_nonfinite) or num_nonfinite < 1:
        return ""
    if num_nonfinite == 1 and _is_known(norm) and not math.isfinite(norm):
        return ""
    number = int(num_nonfinite)
    if num_elements is None or num_elements < number:
        return f" ({counted(number, 'value')})"
    return f" ({count(number)} of {counted(num_elements, 'value')})"


def kind_of_elements(greatest: float, norm: float) -> str:
    """What a tensor's broken elements are: its greatest magnitude says it, or its norm."""
    for value in (greatest, norm):
        if _is_known(value) and not math.isfinite(value):
            return kind_of(value)
    return _UNKNOWN


def _is_known(value: float) -> bool:
    return not bool(is_absent(np.array([value], np.float32))[0])


def _words_of_gradient(block: Block, row: int, layer: str) -> str:
    column = block.rows.layer_names.index(layer)
    greatest, norm, num = (
        float(_stat(block, row, name)[0][column])
        for name in ("grad_absmax", "grad_norm", "nonfinite")
    )
    part = broken_part(num, block.rows.layer_sizes.get(layer), norm)
    return f"{layer}: gradient {kind_of_elements(greatest, norm)}{part}{_on_rank(block)}"


def _origin_of_run(block: Block, row: int) -> Origin | None:
    """Of a run that does not say which layers broke."""
    for name, spec in GUARDED_METRICS.items():
        value, known = _known_metric(block, row, name)
        if not known or (value <= 0.0 if spec.is_count else math.isfinite(value)):
            continue
        if spec.is_count and math.isfinite(value):
            found = f"{_UNKNOWN} ({counted(int(value), 'value')})"
            return Origin(f"{spec.noun} {found}{_on_rank(block)}")
        return Origin(f"{spec.noun} {kind_of(value)}{_on_rank(block)}")
    return None


def _on_rank(block: Block) -> str:
    return f" on rank {block.rows.rank}" if block.rows.rank else ""


def _words_of_losses(losses: dict[str, float]) -> str:
    kinds = {kind_of(value) for value in losses.values()}
    kind = kinds.pop() if len(kinds) == 1 else _UNKNOWN
    return f"{' and '.join(losses)} {kind}"


def _why(block: Block, row: int, losses: dict[str, float]) -> str:
    if _takes_turns(block, row):
        which = "one may have broken the other: " if len(losses) > 1 else ""
        return f"{which}an activation, the data, or an optimizer's step earlier in this row"
    _, known_L = _stat(block, row, "param_norm")
    gradients_L, _ = _stat(block, row, "grad_norm")
    has_gradient_L = ~is_absent(gradients_L)
    all_read = bool(known_L.any() and known_L[has_gradient_L].all())
    return _AFTER_SOUND_PARAMETERS if all_read else _AFTER_ANYTHING


def _stat(block: Block, row: int, name: str) -> tuple[NDArray[np.float32], Bools]:
    """(L,) a stat's values, and which of them are recorded."""
    column = block.rows.stat_columns.get(name)
    if column is None:
        return np.full(block.num_layers, ABSENT_32), np.zeros(block.num_layers, np.bool_)
    values_L = np.ascontiguousarray(block.rows.stats[row, column, :])
    return values_L, ~is_absent(values_L)


def _broken(block: Block, row: int, *, evaluated: bool) -> dict[str, float]:
    """The losses of the training, or of an evaluation, that are not finite, under the program's
    names."""
    metrics: Floats = block.rows.metrics[row]
    return {
        block.rows.known_as.get(name, name): float(metrics[column])
        for column, name in enumerate(block.rows.metric_names)
        if is_loss(name)
        and is_of_evaluation(name) is evaluated
        and not is_absent(metrics[[column]])[0]
        and not np.isfinite(metrics[column])
    }


def _takes_turns(block: Block, row: int) -> bool:
    """Whether optimizers take turns within the row, so that one's step was done as the next one's
    loss was made."""
    num_steps = _metric(block, row, "optimizer_steps")
    return _metric(block, row, "alternating") > 0 and not num_steps <= 1


def _metric(block: Block, row: int, name: str) -> float:
    """NaN where it is not recorded."""
    return _known_metric(block, row, name)[0]


def _known_metric(block: Block, row: int, name: str) -> tuple[float, bool]:
    column = block.rows.metric_columns.get(name)
    if column is None:
        return math.nan, False
    value = block.rows.metrics[row, [column]]
    return float(value[0]), not bool(is_absent(value)[0])
