"""What msgspec leaves out where it refuses a body: what was found there, and what was wanted."""

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
    """The number that is out of bounds; nothing of another kind, which could be a secret. Empty
    where what follows it is no JSON."""
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
    """The words, or the fields, that a schema knows where msgspec met another. Empty for other
    faults, whose text says it, and where several types are left, each with fields of its own."""
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
    """The schemas that a value may follow at the place that msgspec tells of."""
    place = _PLACE.search(told)
    if place is None and " - at `" in told:
        return []  # in a mapping, whose keys it leaves out
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
