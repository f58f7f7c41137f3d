"""Reading a parsed document field by field, and noting every fault instead of the first."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar, cast

from runwatch.errors import Fault
from runwatch.rules.names import nearest

Choice = TypeVar("Choice", bound=StrEnum)


class Fields:
    """One mapping of a document. A field that is missing or wrong gives its default, and a
    fault where it was wrong; `finish` notes the fields that nobody asked for."""

    def __init__(self, document: object, place: str, faults: list[Fault]) -> None:
        self.place = place
        self._faults = faults
        self._asked: set[str] = set()
        self._fields: Mapping[object, object] = {}
        if isinstance(document, Mapping):
            self._fields = cast(Mapping[object, object], document)
        else:
            self.note("", f"found {_words(document)}, wanted a mapping")

    def note(self, name: str, message: str) -> None:
        self._faults.append(Fault(self.place_of(name), message))

    def place_of(self, name: str) -> str:
        if not name:
            return self.place or "document"
        return f"{self.place}.{name}" if self.place else name

    def holds(self, name: str) -> bool:
        return name in self._fields

    def take(self, name: str) -> object:
        self._asked.add(name)
        return self._fields.get(name)

    def text(self, name: str, *, required: bool = False, most: int = 256) -> str:
        found = self.take(name)
        if found is None and not required:
            return ""
        if not isinstance(found, str) or (required and not found) or len(found) > most:
            self.note(name, f"found {_words(found)}, wanted a text of at most {most} characters")
            return ""
        return found

    def whole(self, name: str, *, lowest: int, highest: int) -> int | None:
        found = self.take(name)
        if found is None:
            return None
        if type(found) is not int or not lowest <= found <= highest:
            wanted = f"wanted a whole number, {lowest} to {highest}"
            self.note(name, f"found {_words(found)}, {wanted}")
            return None
        return found

    def number(self, name: str, *, default: float, lowest: float, highest: float = 1e9) -> float:
        found = self.take(name)
        if found is None:
            return default
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
        if not is_number or not lowest <= cast(float, found) <= highest:
            wanted = f"wanted a number, {lowest:g} to {highest:g}"
            self.note(name, f"found {_words(found)}, {wanted}")
            return default
        return float(cast(float, found))

    def truth(self, name: str) -> bool:
        found = self.take(name)
        if found is not None and not isinstance(found, bool):
            self.note(name, f"found {_words(found)}, wanted true or false")
        return found is True

    def choice(self, name: str, default: Choice) -> Choice:
        found = self.take(name)
        kind = type(default)
        if found is None:
            return default
        if isinstance(found, str) and found in {member.value for member in kind}:
            return kind(found)
        wanted = ", ".join(member.value for member in kind)
        self.note(name, f"found {_words(found)}, wanted one of {wanted}")
        return default

    def items(self, name: str, *, most: int) -> list[object]:
        found = self.take(name)
        if found is None:
            return []
        if isinstance(found, list):
            items = cast(list[object], found)
            if len(items) <= most:
                return items
        shown = _words(self._fields.get(name))
        self.note(name, f"found {shown}, wanted a list of at most {most}")
        return []

    def each(self, name: str, *, most: int) -> list["Fields"]:
        """The mappings of the list under a name."""
        return [
            Fields(item, f"{self.place_of(name)}[{index}]", self._faults)
            for index, item in enumerate(self.items(name, most=most))
        ]

    def fields(self, name: str) -> "Fields | None":
        """The mapping under a name; None where there is none."""
        found = self.take(name)
        return None if found is None else Fields(found, self.place_of(name), self._faults)

    def names(self) -> list[str]:
        """The names held; one that is no text is a fault."""
        for name in self._fields:
            if not isinstance(name, str):
                self.note("", f"found the name {_words(name)}, wanted a text")
        return [name for name in self._fields if isinstance(name, str)]

    def finish(self, known: Collection[str] = ()) -> None:
        """Note the fields that are not known; `known` are some beside those asked for."""
        allowed = self._asked | set(known)
        for name in self.names():
            if name not in allowed:
                hint = nearest(name, allowed)
                self.note(name[:80], f"found an unknown field{hint}, wanted {_listed(allowed)}")


def _listed(names: Collection[str]) -> str:
    return "one of " + ", ".join(sorted(names)) if names else "none"


def _words(found: object) -> str:
    """What was found, never long."""
    if isinstance(found, Mapping):
        return "a mapping"
    if isinstance(found, list):
        return f"a list of {len(cast(list[object], found))}"
    if isinstance(found, int) and not isinstance(found, bool) and abs(found) >= 10**20:
        return "a huge number"
    text = "nothing" if found is None else repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
