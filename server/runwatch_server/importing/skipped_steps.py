"""Finds steps that a loss scaler skipped, of which Hugging Face's Trainer logs only the gradient
norm.

That norm is NaN or infinite, as a scaler expects now and then, and the optimizer did not step. The
learning-rate schedule proves it: the Trainer does not advance it at a step that the optimizer did
not take. Up to Transformers 4.50 a row has the rate that its last step left behind, and since then
the one at which it was taken (https://github.com/huggingface/transformers/pull/36973), so the rate
stands still either into that row or out of it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from runwatch_server.importing.run_log import Entry

_LONGEST: Final = 8
"""Most rows in a stretch. PyTorch's scaler starts at 2**16 and halves each time; if 2**8 is still
too large, the gradients are at fault."""
_NEEDED: Final = {"loss", "learning_rate"}
_MAX_SHOWN: Final = 4


def mark_skipped(entries: list[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with `skipped: 1` where the log proves it, and a note. A constant rate proves
    nothing."""
    rows = [
        index
        for index, entry in enumerate(entries)
        if entry.step is not None and entry.values.keys() >= _NEEDED
    ]
    marked = list(entries)
    skipped = [rows[place] for place in _skipped([entries[row] for row in rows])]
    for row in skipped:
        marked[row] = replace(marked[row], values={**marked[row].values, "skipped": 1.0})
    if not skipped:
        return marked, ()
    where = ", ".join(entries[row].place for row in skipped[:_MAX_SHOWN])
    others = f" and {len(skipped) - _MAX_SHOWN} more" if len(skipped) > _MAX_SHOWN else ""
    why = "no finite gradient, and the learning rate stood still: skipped by the loss scaler"
    return marked, (f"{where}{others}: {why}",)


def _skipped(rows: list[Entry]) -> Iterator[int]:
    for first, stop in _stretches(rows):
        usual = _usual(rows, first, stop)
        for place in range(first, stop):
            begins_at_zero = place == 0 and rows[place].values["learning_rate"] == 0.0
            paces = (_lag(rows, later, usual) for later in (place, place + 1))
            if usual > 0.0 and (begins_at_zero or max(paces) >= 0.5):
                yield place


def _stretches(rows: list[Entry]) -> Iterator[tuple[int, int]]:
    """Half-open index ranges of consecutive rows in which only the norm is not finite."""
    first = 0
    for place, row in enumerate(rows):
        if _is_broken(row):
            continue
        if 0 < place - first <= _LONGEST:
            yield first, place
        first = place + 1


def _is_broken(row: Entry) -> bool:
    norm = row.values.get("grad_norm", 0.0)
    return not math.isfinite(norm) and math.isfinite(row.values["loss"])


def _usual(rows: list[Entry], first: int, stop: int) -> float:
    """The change of the rate per step beside a stretch, the smaller of those before and after it; 0
    if the log ends before that shows. Before the first rows, it is extrapolated from the rows after
    them, because a cosine starts slowly."""
    begins = first <= 1
    if stop + 1 + begins >= len(rows):
        return 0.0
    after = _pace(rows, stop + 1)
    if begins:
        return min(after, after - stop * (_pace(rows, stop + 2) - after))
    return min(after, _pace(rows, first - 1))


def _lag(rows: list[Entry], place: int, usual: float) -> float:
    """How many steps' worth of change is missing between a row and the one before it."""
    if place == 0 or usual == 0.0:
        return 0.0
    return _num_steps(rows, place) * (1.0 - _pace(rows, place) / usual)


def _pace(rows: list[Entry], place: int) -> float:
    """The change of the rate per step from the row before to this one."""
    change = rows[place].values["learning_rate"] - rows[place - 1].values["learning_rate"]
    return abs(change) / _num_steps(rows, place)


def _num_steps(rows: list[Entry], place: int) -> int:
    """At least 1, even if a log starts over."""
    return max(1, (rows[place].step or 0) - (rows[place - 1].step or 0))
