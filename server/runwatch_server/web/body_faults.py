"""Completes msgspec's messages about a refused body: what was found there, what was wanted."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

Json = dict[str, "Json"] | list["Json"] | str | float | None

_PLACE: Final = re.compile(r" - at `\$((?:\.\w+|\[\d+\])+)`$")
_STEP_INTO: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_FIELD: Final = "Object contains unknown field "
_UNKNOWN_WORD: Final = ("Invalid enum value ", "Invalid value ")


def found_in(body: bytes, told: str) -> str:
    """The text ", found N" for a number out of bounds, else an empty one.

    Values of other types are not shown, since they could be secrets. Also empty if the body turns
    out not to be valid JSON.
    """
    place = _PLACE.search(told)
    if place is None:
        return ""
    try:
        value: Json = msgspec.json.decode(body)
        for name, index in _STEP_INTO.findall(place[1]):
            if isinstance(value, dict):
                value = value[name]
            elif isinstance(value, list):
                value = value[int(index)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError):
        return ""
    return f", found {value}" if isinstance(value, int | float) else ""


def wanted_by(schema: Json, told: str) -> str:
    """The text ", wanted A, B" with the words or fields that the schema allows at that place.

    Empty for other faults, whose message says it already, and where several types are possible,
    each with its own fields.
    """
    if told.startswith(_UNKNOWN_FIELD):
        found = [one.get("properties") for one in _choices_at(schema, told)]
        fields = [one for one in found if isinstance(one, dict)]  # null has none
        words = list(fields[0]) if len(fields) == 1 else []
    elif told.startswith(_UNKNOWN_WORD):
        enums = [one.get("enum") for one in _choices_at(schema, told)]
        words = [str(word) for enum in enums if isinstance(enum, list) for word in enum]
    else:
        return ""
    return f", wanted {', '.join(words)}" if words else ""


def _choices_at(schema: Json, told: str) -> list[dict[str, Json]]:
    """The schemas allowed at the place that msgspec names."""
    place = _PLACE.search(told)
    if place is None and " - at `" in told:
        return []  # inside a mapping: msgspec does not name the key
    choices = list(_choices(schema))
    for name, _ in _STEP_INTO.findall(place[1]) if place else ():
        choices = [below for one in choices for below in _choices(_below(one, name))]
    return choices


def _choices(schema: Json) -> Iterator[dict[str, Json]]:
    if not isinstance(schema, dict):
        return
    several = schema.get("anyOf")
    if isinstance(several, list):
        for one in several:
            yield from _choices(one)
    else:
        yield schema


def _below(schema: dict[str, Json], name: str) -> Json:
    """The schema of a field of this name, or, without one, of a list's items."""
    if not name:
        return schema.get("items")
    fields = schema.get("properties")
    return fields.get(name) if isinstance(fields, dict) else None
