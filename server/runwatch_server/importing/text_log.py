"""Reads logs that a trainer printed for people: `iter 10: loss 2.31, time 51ms`, and many similar
forms.

Such a text holds much else: the configuration, warnings, the model. Lines about the run recur, so a
line counts only if lines with the same names appear at least three times.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress, pairwise
from typing import Final

from runwatch.aliases import is_a_loss, series_of
from runwatch_server.importing.bar_steps import steps_beside
from runwatch_server.importing.boxed_tables import boxes
from runwatch_server.importing.progress_lines import ProgressLine, of_evaluation, read_line
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import EPOCH, map_names

_MIN_REPEATS: Final = 3
_MAX_LINE: Final = 4000
"""Longer lines are dumps of a configuration or of a model."""
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BREAKS: Final = re.compile(r"[\r\x08]+")
"""Progress bars overwrite themselves."""
_OF_THE_WHOLE_RUN: Final = "train_runtime"


@dataclass(frozen=True, slots=True)
class _PlacedLine:
    place: str
    index: int
    """Of its line among those that appeared on the terminal."""
    line: ProgressLine
    heading: int | None = None
    """The index of the line above it that says where it is."""

    def has_loss(self) -> bool:
        return any(series_of(name) == "loss" for name in self.line.values)


def read_text_log(text: str) -> RawLog | None:
    """The log in a text; None if no lines of it are about a training."""
    lines = _lines(text)
    placed = _of_training(_with_epochs(_with_headings(_placed_lines(lines), lines)))
    if not any(_tells_of_training(one.line) for one in placed):
        return None
    placed = _one_series_each(placed)
    counted = _counted(placed, [line for _, line in lines])
    entries = [
        Entry(one.place, step, None, _values(one.line, epoch))
        for one, (step, epoch) in zip(placed, counted, strict=True)
    ]
    note = f"read as text: {len(entries)} lines are about the training"
    return RawLog(entries, (note,), _most_printed_total(placed))


def _lines(text: str) -> list[tuple[str, str]]:
    """The lines as they appeared on the terminal, each with its place in the file."""
    return [
        (f"line {number}", line)
        for number, whole in enumerate(_ESCAPES.sub("", text).split("\n"), start=1)
        for line in _BREAKS.split(whole)
        if line.strip() and len(line) <= _MAX_LINE and _OF_THE_WHOLE_RUN not in line
    ]


def _placed_lines(lines: list[tuple[str, str]]) -> Iterator[_PlacedLine]:
    boxed = dict(boxes([line for _, line in lines]))
    for index, (place, line) in enumerate(lines):
        yield _PlacedLine(place, index, boxed.get(index) or read_line(line))


def _with_headings(
    placed: Iterable[_PlacedLine], lines: list[tuple[str, str]]
) -> Iterator[_PlacedLine]:
    """Lines below one that only says where the run is, as OLMo, Composer and Coqui print them, are
    at that place if they are indented deeper. In a dumped configuration (`STEPS: (3000, 4000)`)
    they are not."""
    heading: _PlacedLine | None = None
    for one in placed:
        line, indent = one.line, _indent(lines[one.index][1])
        if line.is_placed or line.epoch is not None or not indent:
            heading = one if line.is_placed and not _known(tuple(line.values)) else None
        elif heading is None or indent <= _indent(lines[heading.index][1]):
            heading = None
        else:
            one = replace(
                one, line=replace(heading.line, values=line.values), heading=heading.index
            )
        yield one


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _with_epochs(placed: Iterator[_PlacedLine]) -> Iterator[_PlacedLine]:
    """A line without an epoch belongs to the last epoch named; lines after `Eval begin` are of an
    evaluation until the next epoch is named."""
    epoch: int | None = None
    is_evaluation = False
    for one in placed:
        is_evaluation = one.line.epoch is None and (
            is_evaluation or (one.line.opens_evaluation and epoch is not None)
        )
        epoch = epoch if one.line.epoch is None else one.line.epoch
        line = of_evaluation(one.line) if is_evaluation else one.line
        yield replace(one, line=line if line.epoch == epoch else replace(line, epoch=epoch))


def _of_training(placed: Iterator[_PlacedLine]) -> list[_PlacedLine]:
    keyed = [(key, one) for one in placed if (key := _key(one.line)) is not None]
    repeats = Counter(key for key, _ in keyed)
    configured = _configured(keyed)
    return [
        one
        for key, one in keyed
        if repeats[key] >= _MIN_REPEATS and (key not in configured or one.line.is_placed)
    ]


def _configured(keyed: list[tuple[frozenset[str], _PlacedLine]]) -> set[frozenset[str]]:
    """Names of parts of a loss whose numbers never change: those of a configuration
    (`AUX_LOSS_WEIGHT: 0.5`), which every start of a program prints."""
    told: defaultdict[frozenset[str], set[tuple[float, ...]]] = defaultdict(set)
    for key, one in keyed:
        told[key].add(tuple(one.line.values.values()))
    return {
        key
        for key, values in told.items()
        if len(values) == 1 and not any(series_of(name) for name in key)
    }


def _tells_of_training(line: ProgressLine) -> bool:
    """Whether a line is more than a progress bar, as those that load or tokenize something are."""
    is_counted = line.step is not None or line.epoch is not None
    return is_counted or map_names(line.values).is_of_training


def _key(line: ProgressLine) -> frozenset[str] | None:
    """What a line must have in common with others; None if it is not about training."""
    names = tuple(line.values)
    return _known(names) or (frozenset(names) if names and line.is_placed else None)


@lru_cache(1024)
def _known(names: tuple[str, ...]) -> frozenset[str]:
    # An epoch is printed with a fraction by some, and a row where it is whole is like the others.
    metrics = {name: series_of(name) for name in names}
    return frozenset(
        name for name, metric in metrics.items()
        if metric != EPOCH and (metric or is_a_loss(name))
    )  # fmt: skip


def _one_series_each(placed: list[_PlacedLine]) -> list[_PlacedLine]:
    """If a series has several names, the most frequent is used. The means of epochs beside the
    losses of batches are another series, even if both are called `loss`."""
    placed = _apart_from_means(placed)
    counts = Counter(name for one in placed for name in one.line.values)
    chosen: dict[str, str] = {}
    for name, _ in counts.most_common():
        if (metric := series_of(name)) is not None:
            chosen.setdefault(metric, name)
    others = {
        name: f"other/{name}"
        for name in counts
        if (metric := series_of(name)) is not None and chosen[metric] != name
    }
    return [_renamed(one, others) for one in placed]


def _apart_from_means(placed: list[_PlacedLine]) -> list[_PlacedLine]:
    with_loss = [one.line for one in placed if one.has_loss()]
    # fairseq's line about an epoch has a step, as those about batches have, but no place in it.
    if _is_of_most(line.place is not None for line in with_loss):
        are_means = [one.line.place is None for one in placed]
    elif _is_of_most(line.is_placed for line in with_loss):
        are_means = [not one.line.is_placed for one in placed]
    else:
        return placed
    means = {
        name: f"mean/{name}" for name in {name for one in placed for name in one.line.values}
        if series_of(name) == "loss"
    }  # fmt: skip
    return [
        _renamed(one, means) if is_mean else one
        for one, is_mean in zip(placed, are_means, strict=True)
    ]


def _is_of_most(verdicts: Iterable[bool]) -> bool:
    """Whether something is so for more than half, but not for all."""
    counts = Counter(verdicts)
    return counts[True] > counts[False] > 0


def _renamed(one: _PlacedLine, names: Mapping[str, str]) -> _PlacedLine:
    if not any(name in names for name in one.line.values):
        return one
    values = {names.get(name, name): value for name, value in one.line.values.items()}
    return replace(one, line=replace(one.line, values=values))


def _counted(placed: list[_PlacedLine], lines: list[str]) -> list[tuple[int | None, int | None]]:
    """The step and the epoch of each row; `lines` are those of the whole log."""
    epochs = [one.line.epoch for one in placed]
    steps = [one.line.step for one in placed]
    are_rows = _are_rows(placed)
    if _count_rows(steps, are_rows):
        return list(zip(steps, epochs, strict=True))
    # Other progress bars, as for extracting features, have counts of their own.
    places = [
        one.line.place if is_row else None for one, is_row in zip(placed, are_rows, strict=True)
    ]
    if _count_rows(places, are_rows):
        if all(epoch is None for epoch in epochs):
            epochs = list(_rounds(places))
        return list(zip(places, epochs, strict=True))
    if _count_rows(epochs, are_rows, least=0.9):
        return list(zip(epochs, epochs, strict=True))
    rows = list(compress((one.index for one in placed), are_rows))
    if (beside := steps_beside(rows, lines)) is not None:
        of_rows = dict(zip(rows, beside, strict=True))
        return [(of_rows.get(one.index), one.line.epoch) for one in placed]
    return [(None, epoch) for epoch in epochs]


def _are_rows(placed: Sequence[_PlacedLine]) -> list[bool]:
    """Which lines stand for a row: those with a loss, or else those with a place, of which one
    below each heading, or else all."""
    has_loss = [one.has_loss() for one in placed]
    if any(has_loss):
        return has_loss
    above = [None, *(one.heading for one in placed)]
    has_place = [
        one.line.is_placed and (one.heading is None or one.heading != before)
        for before, one in zip(above, placed, strict=False)
    ]
    return has_place if any(has_place) else [True] * len(placed)


def _most_printed_total(placed: Sequence[_PlacedLine]) -> int | None:
    """How many steps there are, by most of the rows that say it."""
    totals = Counter(one.line.total for one in placed if one.line.total is not None)
    return next((total for total, _ in totals.most_common(1)), None)


def _count_rows(
    counts: Sequence[int | None], are_rows: Sequence[bool], *, least: float = 0.5
) -> bool:
    """Whether counts distinguish one row from the next: among the rows with a loss, if there are
    any."""
    of_rows = list(compress(counts, are_rows))
    num_new = sum(
        after is not None and after != before for before, after in pairwise([None, *of_rows])
    )
    return num_new >= least * len(of_rows)


def _rounds(places: Sequence[int | None]) -> Iterator[int]:
    """Epochs that are not named: a new one each time the batches start over."""
    epoch, newest = 0, -1
    for place in places:
        if place is not None:
            epoch += place < newest
            newest = place
        yield epoch


def _values(line: ProgressLine, epoch: int | None) -> Mapping[str, float]:
    return line.values if epoch is None else {EPOCH: float(epoch), **line.values}
