"""Handles rows of evaluations among those of training, whose step counts something else.

OpenMMLab's JSON lines hold both. mmcv marks them by `mode` and counts an evaluation's batches under
the name that counts those of training; mmengine counts epochs under the name of the steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from runwatch.aliases import series_of

Row = tuple[str, Mapping[str, object]]
"""The place in the file, and the values there."""

_MODE: Final = "mode"
_EVALUATIONS: Final = frozenset(("val", "valid", "test", "eval"))
_COUNTS: Final = ("epoch", "iter")
"""Names in mmengine's training rows, beside their `step`."""


def without_own_steps(rows: Sequence[Row], step: str | None) -> list[Row]:
    """The rows, in which those of an evaluation have no step, so that they belong to the step
    before them."""
    if step is None:
        return list(rows)
    if any(_MODE in found for _, found in rows):
        return [(place, _of_mode(found, step)) for place, found in rows]
    if any(all(name in found for name in (*_COUNTS, step)) for _, found in rows):
        return list(_of_epochs(rows, step))
    return list(rows)


def _of_mode(found: Mapping[str, object], step: str) -> Mapping[str, object]:
    return _evaluated(found, step) if found.get(_MODE) in _EVALUATIONS else found


def _of_epochs(rows: Sequence[Row], step: str) -> Iterable[Row]:
    epoch: object = None
    for place, found in rows:
        epoch = found.get("epoch", epoch)
        is_training = any(name in found for name in _COUNTS) or found.get(step) != epoch
        yield (place, found if is_training else _evaluated(found, step))


def _evaluated(found: Mapping[str, object], step: str) -> dict[str, object]:
    return {
        "val/loss" if series_of(name) == "loss" else name: value
        for name, value in found.items()
        if name != step
    }
