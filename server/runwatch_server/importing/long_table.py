"""Reads tables with one row per number: MLflow's metrics (run, key, step, value), and
TensorBoard's.

TensorBoard's own export is of one series, which only the file's name identifies.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.numbers import is_absent_text, number_of, unix_time, whole_step
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import find_time

_KEYS: Final = ("key", "metric", "metric_name", "tag")
_VALUES: Final = ("value", "metric_value")
_STEPS: Final = ("step",)
_RUNS: Final = ("run_id", "run_uuid", "run", "run_name")
_TAG_IN_NAME: Final = re.compile(r"run-.*-tag-(?P<tag>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Columns:
    """The index of each column."""

    key: int
    value: int
    step: int
    run: int | None
    time: int | None


def columns_of(names: Sequence[str]) -> Columns | None:
    """The columns; None for a table with one column per series."""
    forms = [name.strip().lower().replace(" ", "_") for name in names]
    key, value = _first(forms, _KEYS), _first(forms, _VALUES)
    step, time = _first(forms, _STEPS), find_time(names)
    if key is None or value is None or step is None:
        return None
    place = None if time is None else names.index(time)
    return Columns(key, value, step, _first(forms, _RUNS), place)


def read_long(rows: Iterable[tuple[str, list[str]]], columns: Columns) -> RawLog:
    """The log in rows, each with its place. Each run in it becomes an attempt. Raises LogError."""
    of_runs: dict[str, list[Entry]] = {}
    for place, row in rows:
        run = "" if columns.run is None else row[columns.run]
        of_runs.setdefault(run, []).extend(_entry(place, row, columns))
    notes = ["each row is one number of the series that it names"]
    if len(of_runs) > 1:
        notes.append(f"{len(of_runs)} runs in one table: an attempt each, in their order")
    return RawLog([entry for entries in of_runs.values() for entry in entries], tuple(notes))


def named_by_file(raw: RawLog, stem: str) -> RawLog:
    """The log with its only series named after the file, if the table gives no name."""
    if {name for entry in raw.entries for name in entry.values} != {"Value"}:
        return raw
    match = _TAG_IN_NAME.fullmatch(stem)
    name = stem if match is None else match["tag"]
    entries = [
        replace(entry, values={name: entry.values["Value"]})
        for entry in raw.entries
        if entry.values
    ]
    return RawLog(entries, (*raw.notes, f"its only series is called {name}, after the file"))


def _entry(place: str, row: list[str], columns: Columns) -> Iterator[Entry]:
    text = row[columns.value]
    if is_absent_text(text):
        return
    value, step = number_of(text), number_of(row[columns.step])
    if value is None:
        raise LogError(place, f"value: found {text[:40]!r}, wanted a number, or nothing")
    at = None if columns.time is None else unix_time(number_of(row[columns.time]))
    at_step = None if step is None else whole_step(step, place)
    yield Entry(place, at_step, at, {row[columns.key]: value})


def _first(forms: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((forms.index(form) for form in wanted if form in forms), None)
