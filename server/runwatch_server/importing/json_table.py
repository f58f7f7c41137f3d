"""Reads whole JSON documents: a list with one object per row, or a history with one list per
series."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from json import JSONDecodeError, JSONDecoder
from typing import Final, cast

from runwatch_server.importing.json_lines import check_names, object_of, read_objects
from runwatch_server.importing.numbers import value_of
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import map_names

_BETWEEN: Final = re.compile(r"[ \t\r\n,]*")
"""The text between the rows of a list."""
_BEGUN: Final = re.compile(r"[\w.+\\-]*\s*")
"""The beginning of a number or a word of JSON."""


def is_table(document: object) -> bool:
    """Whether a parsed file is one of the two; an object of single numbers is neither."""
    if isinstance(document, list):
        return all(isinstance(row, dict) for row in cast(list[object], document))
    return isinstance(document, dict) and bool(_series(cast(Mapping[str, object], document)))


def read_table(document: object) -> RawLog:
    """The log in a parsed file. Raises LogError."""
    if isinstance(document, list):
        rows = cast(list[object], document)
        return read_objects([(f"[{i}]", object_of(row, f"[{i}]")) for i, row in enumerate(rows)])
    return _of_history(_series(object_of(document, "file")))


def read_cut_list(text: str) -> RawLog | None:
    """The log in a list of objects that ends within its last row, because a program was killed
    while it wrote the list; None for any other text. Raises LogError or RecursionError."""
    decoder = JSONDecoder()
    rows: list[object] = []
    at = text.index("[") + 1
    while text.startswith("{", at := _end(_BETWEEN, text, at)):
        try:
            row, at = decoder.raw_decode(text, at)
        except JSONDecodeError as error:
            if not _is_cut_off(text, error):
                return None
            at = len(text)
        else:
            rows.append(row)
    if not rows or at < len(text):
        return None
    log = read_table(rows)
    return replace(log, notes=(f"[{len(rows)}] is cut off: left out", *log.notes))


def _is_cut_off(text: str, error: JSONDecodeError) -> bool:
    """Whether the text ends within a part of a row, or where the next part was expected."""
    is_text = error.msg.startswith("Unterminated string")
    return is_text or _end(_BEGUN, text, error.pos) == len(text)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None  # it also matches an empty text
    return found.end()


def _of_history(series: Mapping[str, list[float | None]]) -> RawLog:
    """Values at the same index of their lists form a row. For a series whose length differs from
    the loss's, such as evaluations beside steps, it is unknown where its values belong."""
    check_names(series, "file")
    ours = map_names(series).metrics
    losses = [name for name in series if ours.get(name) == "loss"]
    num_rows = len(series[losses[0]]) if losses else max(map(len, series.values()))
    notes = tuple(
        f"{name} has {len(values)} values, not {num_rows}: left out"
        for name, values in series.items()
        if len(values) != num_rows
    )
    kept = {name: values for name, values in series.items() if len(values) == num_rows}
    entries: list[Entry] = []
    for place in range(num_rows):
        row = {name: values[place] for name, values in kept.items()}
        known = {name: value for name, value in row.items() if value is not None}
        entries.append(Entry(f"[{place}]", None, None, known))
    return RawLog(entries, notes)


def _series(document: Mapping[str, object]) -> dict[str, list[float | None]]:
    """The lists of numbers in an object, by their names joined by slashes."""
    return {
        name: [None if item is None else value_of(item) for item in values]
        for name, values in _lists(document, "")
        if len(values) > 1 and all(item is None or value_of(item) is not None for item in values)
    }


def _lists(document: Mapping[str, object], prefix: str) -> Iterator[tuple[str, list[object]]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _lists(cast(Mapping[str, object], value), f"{prefix}{name}/")
        elif isinstance(value, list):
            yield f"{prefix}{name}", cast(list[object], value)
