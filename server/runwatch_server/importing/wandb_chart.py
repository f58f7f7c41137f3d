"""Reads the CSV that W&B's page exports of a chart: a column for each run and series, beside the
lowest and the highest value of each point."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.numbers import is_absent_text, number_of, whole_step
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import find_step

_BETWEEN: Final = " - "
_LOWEST, _HIGHEST = "__MIN", "__MAX"
_OWN_STEP: Final = "_step"
"""Where a chart is drawn over a time, each run has its steps in a column of its own."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The indices of a chart's columns."""

    step: int | None
    series: dict[str, dict[str, int]]
    """Of each run, by the names of its series."""


def chart_of(names: Sequence[str]) -> Chart | None:
    """The columns; None for another table."""
    series: dict[str, dict[str, int]] = {}
    for column, name in enumerate(names):
        run, between, metric = name.rpartition(_BETWEEN)
        if between and {f"{name}{_LOWEST}", f"{name}{_HIGHEST}"} <= set(names):
            series.setdefault(run, {})[metric] = column
    if not series:
        return None
    step = find_step(names)
    return Chart(None if step is None else names.index(step), series)


def read_chart(rows: Iterable[tuple[str, list[str]]], chart: Chart) -> RawLog:
    """The log in rows, each with its place. Each run in it becomes an attempt. Raises LogError."""
    placed = list(rows)
    entries = [entry for run in chart.series for entry in _entries(placed, chart, run)]
    notes = ["a chart that W&B exported: its lowest and highest values are left out"]
    if len(chart.series) > 1:
        notes.append(f"{len(chart.series)} runs in one chart: an attempt each, in their order")
    return RawLog(entries, tuple(notes))


def _entries(rows: list[tuple[str, list[str]]], chart: Chart, run: str) -> Iterator[Entry]:
    columns = chart.series[run]
    step = columns.get(_OWN_STEP) if chart.step is None else chart.step
    for place, row in rows:
        values = {
            name: value
            for name, column in columns.items()
            if name != _OWN_STEP and (value := _value(row[column], name, place)) is not None
        }
        at_step = None if step is None else _value(row[step], "step", place)
        if values:
            yield Entry(
                place, None if at_step is None else whole_step(at_step, place), None, values
            )


def _value(text: str, name: str, place: str) -> float | None:
    """Raises LogError for a word."""
    number = number_of(text)
    if number is None and not is_absent_text(text):
        raise LogError(place, f"{name}: found {text[:40]!r}, wanted a number, or nothing")
    return number
