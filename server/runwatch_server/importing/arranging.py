"""Puts a log's entries into the order in which the run happened: attempts, segments, rising steps.

A job that went back to a checkpoint or started over may append to its log, and loggers write a
validation loss late. So an entry with an earlier step is one of two things. If everything it
records is new at its step, it is late, and is put in its place. Otherwise the run went back: to
where the attempt began, then it started over (another attempt); or to a step within, then it
resumed (another segment), and rules forget what was undone. If epochs are counted, only another
training has the first epoch again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from runwatch_server.importing.run_log import Entry


@dataclass(frozen=True, slots=True)
class Placed:
    """A row with its step: one entry, or several entries of the same step merged."""

    step: int
    at: float | None
    values: Mapping[str, float]


_BEGINNING: Final = 2
"""A long attempt that goes back to one of its first rows, this many, counts as started over. The
first row may be that of an evaluation before the first logged step."""
_LONG: Final = 8
"""Number of rows that make an attempt a long one."""


@dataclass(slots=True)
class Stretch:
    """Rows between two falls of the step."""

    attempt: int
    segment: int
    rows: list[Placed] = field(default_factory=list[Placed])
    newest: dict[str, int] = field(default_factory=dict[str, int])
    """The last step at which each series was recorded."""
    highest: int = -1
    epochs: list[float] = field(default_factory=list[float])
    """The first and the newest epoch, if epochs are counted."""

    def goes_back(self, step: int, values: Mapping[str, float]) -> bool:
        return step < self.highest and any(self.newest.get(name, step) > step for name in values)

    def add(self, row: Placed) -> None:
        self.rows.append(row)
        self.newest.update(dict.fromkeys(row.values, row.step))
        self.highest = max(self.highest, row.step)

    def note_epoch(self, epoch: float | None) -> None:
        if epoch is not None:
            self.epochs = [*self.epochs[:1], epoch]


@dataclass(frozen=True, slots=True)
class Arranged:
    stretches: list[Stretch]
    notes: tuple[str, ...]
    falls: tuple[str, ...]
    """Places where the step went back, and how each was interpreted."""


def arrange(entries: list[Entry], epoch_name: str | None = None) -> Arranged:
    """The entries as stretches of rising steps, in the order in which they happened. `epoch_name`
    is the log's own name for its epochs, if it counts them."""
    notes: list[str] = []
    falls: list[str] = []
    if _is_newest_first(entries):
        notes.append("the newest row comes first: read from the end")
        entries = entries[::-1]
    stretches = [Stretch(1, 0)]
    for step, entry in _with_steps(entries, epoch_name, notes):
        stretch = stretches[-1]
        epoch = None if epoch_name is None else entry.values.get(epoch_name)
        if stretch.goes_back(step, entry.values):
            stretch = _next_stretch(stretches, step, epoch)
            stretches.append(stretch)
            falls.append(_fall(entry, step, stretch))
        stretch.add(Placed(step, entry.at, entry.values))
        stretch.note_epoch(epoch)
    kept = [stretch for stretch in stretches if stretch.rows]
    for stretch in kept:
        stretch.rows = list(_merged(sorted(stretch.rows, key=lambda row: row.step)))
    return Arranged(kept, tuple(notes), tuple(falls))


def _with_steps(
    entries: list[Entry], epoch_name: str | None, notes: list[str]
) -> Iterator[tuple[int, Entry]]:
    """Each entry with its step; one without a step belongs to the step before it. If no entry has a
    step, rows are counted."""
    if all(entry.step is None for entry in entries):
        notes.append("no step is given: rows are counted from 0")
        yield from _rows_counted(entries, epoch_name)
        return
    latest: int | None = None
    num_carried = num_dropped = 0
    for entry in entries:
        latest = latest if entry.step is None else entry.step
        num_carried += entry.step is None and latest is not None
        if latest is None:
            num_dropped += 1
        else:
            yield latest, entry
    if num_carried:
        notes.append(f"{num_carried} rows without a step belong to the step before them")
    if num_dropped:
        notes.append(f"{num_dropped} rows come before the first step: left out")


def _rows_counted(entries: list[Entry], epoch_name: str | None) -> Iterator[tuple[int, Entry]]:
    """Rows counted from 0, and again from 0 if the first epoch comes again after another."""
    step = 0
    epochs: list[float] = []
    for entry in entries:
        epoch = None if epoch_name is None else entry.values.get(epoch_name)
        if epoch is not None:
            if epochs and epoch <= epochs[0] < epochs[-1]:
                step, epochs = 0, []
            epochs = [*epochs[:1], epoch]
        yield step, entry
        step += 1


def _is_newest_first(entries: list[Entry]) -> bool:
    steps = [entry.step for entry in entries if entry.step is not None]
    return len(steps) > 2 and all(after < before for before, after in pairwise(steps))


def _next_stretch(stretches: list[Stretch], step: int, epoch: float | None) -> Stretch:
    last = stretches[-1]
    attempt = [one for one in stretches if one.attempt == last.attempt and one.rows]
    if _begins_anew(attempt, step, epoch):
        return Stretch(last.attempt + 1, 0)
    return Stretch(last.attempt, last.segment + 1)


def _begins_anew(attempt: list[Stretch], step: int, epoch: float | None) -> bool:
    """Whether a row with an earlier step is the first of another training, and not part of this
    attempt."""
    epochs = [told for one in attempt for told in one.epochs]
    if epoch is not None and epochs and epoch <= epochs[0] < epochs[-1]:
        return True
    rows = attempt[0].rows
    num_first = _BEGINNING if len(rows) > _LONG else 1
    return step <= max(
        min(one.rows[0].step for one in attempt), *(row.step for row in rows[:num_first])
    )


def _fall(entry: Entry, step: int, stretch: Stretch) -> str:
    if stretch.segment:
        return f"{entry.place} goes back to step {step}: segment {stretch.segment}"
    return f"{entry.place} starts over at step {step}: attempt {stretch.attempt}"


def _merged(rows: Iterable[Placed]) -> Iterator[Placed]:
    """Merge rows of the same step unless they contradict each other: a validation loss may have its
    own row."""
    held: Placed | None = None
    for row in rows:
        if held is None:
            held = row
        elif row.step == held.step and _agree(held.values, row.values):
            held = Placed(
                held.step, held.at if row.at is None else row.at, {**held.values, **row.values}
            )
        else:
            yield held
            held = row
    if held is not None:
        yield held


def _agree(left: Mapping[str, float], right: Mapping[str, float]) -> bool:
    return all(
        left[name] == value or (left[name] != left[name] and value != value)
        for name, value in right.items()
        if name in left
    )
