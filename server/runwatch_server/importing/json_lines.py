"""Reads JSON lines: one object per line, with nested names joined by slashes."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from runwatch.terminal_text import encodable
from runwatch_server.importing.errors import LogError
from runwatch_server.importing.evaluation_rows import without_own_steps
from runwatch_server.importing.numbers import unix_time, value_of, whole_step
from runwatch_server.importing.run_log import Entry, RawLog
from runwatch_server.importing.series_names import find_step, find_time


def read_json_lines(text: str) -> RawLog:
    """The log in a text with one JSON object per line; an incomplete last one is left out. Raises
    LogError."""
    documents: list[tuple[str, Mapping[str, object]]] = []
    notes: tuple[str, ...] = ()
    # Not str.splitlines, which also ends lines at U+2028 and others that a JSON text may contain.
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        place = f"line {number}"
        if not line.strip():
            continue
        try:
            documents.append((place, _object(line, place)))
        except LogError:
            if line.endswith("\n") or not documents:
                raise
            notes = (f"{place} is cut off: left out",)
    log = read_objects(documents)
    return replace(log, notes=(*notes, *log.notes))


def read_objects(documents: Sequence[tuple[str, Mapping[str, object]]]) -> RawLog:
    """The log in objects, each with its place. Raises LogError."""
    rows = [(place, dict(_flat(document, ""))) for place, document in documents]
    names: dict[str, None] = {}
    for place, row in rows:
        check_names(row.keys() - names.keys(), place)
        names |= dict.fromkeys(row)
    step, time = find_step(names), find_time(names)
    flat = without_own_steps(rows, step)
    entries: list[Entry] = []
    words: dict[str, None] = {}
    for place, found in flat:
        numbers = {name: value_of(value) for name, value in found.items()}
        values = {
            name: number
            for name, number in numbers.items()
            if number is not None and name not in (step, time)
        }
        words.update(
            (name, None)
            for name, number in numbers.items()
            if number is None and found[name] is not None
        )
        at_step = None if step is None else _step(found.get(step), place)
        at = None if time is None else unix_time(numbers.get(time))
        if values:
            entries.append(Entry(place, at_step, at, values))
    notes = tuple(f"{name} has values that are not numbers: left out there" for name in words)
    return RawLog(entries, notes)


def _object(line: str, place: str) -> Mapping[str, object]:
    try:
        document: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(place, f"found no JSON ({error}), wanted one object per line") from error
    return object_of(document, place)


def check_names(names: Iterable[str], place: str) -> None:
    """Raises LogError for a name that cannot be encoded: JSON can escape half of a surrogate
    pair."""
    for name in names:
        if encodable(name) != name:
            raise LogError(place, f"found the name {name!r:.40} with half a letter, wanted a text")


def object_of(document: object, place: str) -> dict[str, object]:
    """The JSON value, if it is an object. Raises LogError otherwise."""
    try:
        return msgspec.convert(document, dict[str, object])
    except msgspec.ValidationError as error:
        raise LogError(place, f"found {str(document)[:40]!r}, wanted an object") from error


def _flat(document: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(msgspec.convert(value, dict[str, object]), f"{prefix}{name}/")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value


def _step(found: object, place: str) -> int | None:
    if found is None:
        return None
    number = value_of(found)
    if number is None:
        raise LogError(place, f"step: found {found!r}, wanted a whole number")
    return whole_step(number, place)
