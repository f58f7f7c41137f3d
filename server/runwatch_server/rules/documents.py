"""Parses rule files from YAML, with the line of every place in them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

import yaml

from runwatch.errors import Fault, RuleError

MAX_TEXT_BYTES: Final = 256 * 2**10
_MAX_DEPTH: Final = 32
"""Levels of lists and mappings; a rule file has eight. PyYAML's time grows as their square."""
LOADER: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it: it is ten times as fast."""

Lines = dict[str, int]
"""1-based line of the file for each place in the document."""


def located(error: RuleError, lines: Lines) -> RuleError:
    """The same faults, each with its line in the file."""
    return RuleError([_with_line(fault, lines) for fault in error.faults])


def parse_yaml(text: str, loader: type[yaml.SafeLoader] = LOADER) -> tuple[object, Lines]:
    """The document in a YAML text, and the line of each of its places.

    Anchors and aliases are refused: a few lines of them can expand to more than fits in memory. So
    are tags, which force a type on a text: PyYAML fails on `!!int ""` with errors of its own.
    """
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise RuleError([_fault(f"found {len(text.encode())} bytes, wanted <= {MAX_TEXT_BYTES}")])
    try:
        _check_events(text, loader)
        return _composed(text, loader)
    except RuleError:
        raise
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise RuleError([_fault(f"found invalid YAML: {error.problem}", line)]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise RuleError([_fault(f"found invalid YAML: {error}")]) from error


def _check_events(text: str, loader: type[yaml.SafeLoader]) -> None:
    """Checks the events before anything is built from them.

    Raises RuleError, and UnicodeEncodeError for a text that UTF-8 cannot hold: the escape of a lone
    surrogate.
    """
    depth = 0
    # The stubs do not say what the loaders give here: events, with either loader.
    events: Iterator[Any] = cast("Iterator[Any]", yaml.parse(text, Loader=loader))
    for event in events:
        match event:
            case yaml.AliasEvent():
                raise _event_fault(event, f"found the alias *{event.anchor}, wanted none")
            case yaml.ScalarEvent() | yaml.CollectionStartEvent() if event.tag is not None:
                raise _event_fault(event, f"found the tag {event.tag[:80]}, wanted none")
            case yaml.CollectionStartEvent():
                depth += 1
                if depth > _MAX_DEPTH:
                    told = f"found lists and mappings {depth} deep, wanted at most {_MAX_DEPTH}"
                    raise _event_fault(event, told)
            case yaml.CollectionEndEvent():
                depth -= 1
            case yaml.ScalarEvent():
                event.value.encode()
            case _:
                pass


def _composed(text: str, loader: type[yaml.SafeLoader]) -> tuple[object, Lines]:
    node = yaml.compose(text, Loader=loader)
    if node is None:
        return None, {}
    lines = dict(_walk(node, ""))
    document: object = yaml.load(text, Loader=loader)
    return document, lines


def _event_fault(event: yaml.Event, message: str) -> RuleError:
    line = None if event.start_mark is None else event.start_mark.line + 1
    return RuleError([_fault(message, line)])


def _walk(node: yaml.Node, place: str) -> Iterator[tuple[str, int]]:
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk(child, f"{place}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        _refuse_double_keys(node, place)
        for key, child in node.value:
            yield from _walk(child, _below(place, key.value))


def _refuse_double_keys(node: yaml.MappingNode, place: str) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if str(key.value) in seen:
            line = key.start_mark.line + 1
            raise RuleError(
                [Fault(_below(place, key.value), "found twice, wanted once", line=line)]
            )
        seen.add(str(key.value))


def _below(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


def _with_line(fault: Fault, lines: Lines) -> Fault:
    """The line of a fault's place, or of the nearest place above it that the file has."""
    place = fault.place
    while place and place not in lines:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return replace(fault, line=lines.get(place))


def _fault(message: str, line: int | None = None) -> Fault:
    return Fault("file", message, line=line)
