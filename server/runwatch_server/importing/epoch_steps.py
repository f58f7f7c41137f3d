"""Converts steps that a log counts within each epoch to steps of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import floor, isfinite

from runwatch.frames import MAX_STEP
from runwatch_server.importing.run_log import Entry


def count_on(
    entries: list[Entry], epoch_name: str | None, printed_length: int | None = None
) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with steps of the run, and a note, if the log counts steps within each epoch.
    Otherwise each epoch would be taken for another attempt. `epoch_name` is the log's own.

    `printed_length` is the number of steps per epoch as far as the log says it, if it does: the
    last steps of an epoch are often not logged.
    """
    if epoch_name is None:
        return entries, ()
    counts = [
        (epoch, entry.step)
        for entry in entries
        if entry.step is not None and (epoch := _epoch(entry.values, epoch_name)) is not None
    ]
    if not _begin_anew(counts):
        return entries, ()
    first = min(epoch for epoch, _ in counts)
    steps = [step for _, step in counts]
    length = max(steps) + (min(steps) == 0)
    if printed_length is not None and _ends_with_log(printed_length, counts):
        length = max(length, printed_length)
    if (max(epoch for epoch, _ in counts) - first + 1) * length > MAX_STEP:
        return entries, ()
    counted: list[Entry] = []
    epoch = first
    for entry in entries:
        told = _epoch(entry.values, epoch_name)
        epoch = epoch if told is None else told
        step = None if entry.step is None else (epoch - first) * length + entry.step
        counted.append(replace(entry, step=step))
    return counted, (f"steps start over in each {epoch_name}: counted on, {length} per epoch",)


def _begin_anew(counts: Sequence[tuple[int, int]]) -> bool:
    """Whether steps rise within an epoch and mostly do not rise from one epoch to the next.
    Mostly, because if every hundredth batch of the run is logged by its place in the epoch, that
    place can be later in the next one. A falling epoch is ignored: there the job started over,
    or went back."""
    num_epochs = num_fallen = num_risen = 0
    for (epoch, step), (next_epoch, next_step) in pairwise(counts):
        if next_epoch == epoch and next_step < step:
            return False
        num_epochs += next_epoch > epoch
        num_fallen += next_epoch > epoch and next_step < step
        num_risen += next_epoch > epoch and next_step > step
    return 2 * num_risen < num_epochs and (num_fallen > 0 or num_epochs > 1)


def _ends_with_log(length: int, counts: Sequence[tuple[int, int]]) -> bool:
    """Whether an epoch of this length ends less than an interval of the log after its last row. If
    it does not, the printed number is another: of the whole run, or, as in `[640/60000]`, of a data
    set of which each process counts its share."""
    intervals = [
        next_step - step
        for (epoch, step), (next_epoch, next_step) in pairwise(counts)
        if next_epoch == epoch
    ]
    return not intervals or length - max(step for _, step in counts) <= max(intervals)


def _epoch(values: Mapping[str, float], name: str) -> int | None:
    """The epoch of a row; some loggers write it with a fraction."""
    value = values.get(name)
    return None if value is None or not isfinite(value) else floor(value)
