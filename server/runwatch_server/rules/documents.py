"""Rule files as text: YAML into documents, with the line of every place in them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import yaml

from runwatch.errors import Fault, RuleError

MAX_TEXT_BYTES: Final = 256 * 2**10

Lines = dict[str, int]
"""1-based line of the file for each place in the document."""


def located(error: RuleError, lines: Lines) -> RuleError:
    """The same faults, each with its line in the file."""
    return RuleError([_with_line(fault, lines) for fault in error.faults])


def parse_yaml(text: str) -> tuple[object, Lines]:
    """The document in a YAML text, and where in the text each of its places is.

    Anchors and aliases are refused: a few lines of them unfold to more than fits in memory.
    """
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise RuleError([_fault(f"found {len(text.encode())} bytes, wanted <= {MAX_TEXT_BYTES}")])
    try:
        _refuse_aliases(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_walk(node, "")) if node is not None else {}
        document: object = yaml.safe_load(text)
    except RuleError:
        raise
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise RuleError([_fault(f"found no YAML: {error.problem}", line)]) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise RuleError([_fault(f"found no YAML: {error}")]) from error
    return document, lines


def _refuse_aliases(text: str) -> None:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = None if event.start_mark is None else event.start_mark.line + 1
            raise RuleError([_fault(f"found the alias *{event.anchor}, wanted none", line)])


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
    """The line of a fault's place, or of the nearest thing above it that the file holds."""
    place = fault.place
    while place and place not in lines:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return replace(fault, line=lines.get(place))


def _fault(message: str, line: int | None = None) -> Fault:
    return Fault("file", message, line=line)
