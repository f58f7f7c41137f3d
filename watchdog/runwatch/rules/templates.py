"""Annotations: text with placeholders from a fixed set, and nothing that reaches further.

`str.format` would follow attributes (`{value.__class__}`), and so hand out the process's insides to
whoever may write a rule. Here a placeholder is a name of the set and a plain number format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter
from typing import Final

from runwatch.errors import Fault
from runwatch.number_texts import count, number

MAX_TEMPLATE_CHARS: Final = 4096

NUMBERS: Final = frozenset(("value",))
INTEGERS: Final = frozenset(("step", "onset_step", "num_layers", "attempt", "segment", "rank"))
TEXTS: Final = frozenset(
    (
        "rule",
        "severity",
        "first_layer",
        "worst_layer",
        "layers",
        "in_layers",
        "named",
        "origin",
        "phase",
        "spread",
        "where",
    )
)
PLACEHOLDERS: Final = NUMBERS | INTEGERS | TEXTS

_FORMATS: Final = (
    (NUMBERS, re.compile(r"[+ ]?[0-9]{0,2},?(\.[0-9]{1,2})?[eEfFgG%]?"), "such as .3g"),
    (INTEGERS, re.compile(r"[+ ]?[0-9]{0,2},?d?"), "such as 6d"),
    (TEXTS, re.compile(r"[<>^]?[0-9]{0,2}s?"), "such as >20"),
)

_DIGITS: Final = re.compile(r"\.([1-9][0-9]?)g")

Facts = Mapping[str, float | int | str]
"""A value for each placeholder."""


@dataclass(frozen=True)
class Template:
    """A text with placeholders, as written."""

    text: str

    @cached_property
    def parts(self) -> tuple[tuple[str, str | None, str], ...]:
        """(text before, placeholder or None, its format). Raises ValueError for broken braces."""
        return tuple(
            (
                before,
                None if name is None else name + ("!" + conversion if conversion else ""),
                spec or "",
            )
            for before, name, spec, conversion in Formatter().parse(self.text)
        )

    def render(self, facts: Facts) -> str:
        """The text, filled in. Never raises: an alert matters more than its wording."""
        try:
            return "".join(
                before + ("" if name is None else _shown(facts[name], spec))
                for before, name, spec in self.parts
            )
        except (ValueError, KeyError, TypeError) as error:
            return f"{self.text} <not filled in: {error}>"


def _shown(fact: float | int | str, spec: str) -> str:
    """As the page writes numbers, but where the rule's author asks for another form."""
    digits = _DIGITS.fullmatch(spec)
    if isinstance(fact, float) and digits:
        return number(fact, int(digits[1]))
    if isinstance(fact, int) and not spec:
        return count(fact)
    return format(fact, spec)


EMPTY: Final = Template("")


def faults_of(text: str, place: str) -> list[Fault]:
    """All that is wrong with a template."""
    if len(text) > MAX_TEMPLATE_CHARS:
        wanted = f"wanted at most {MAX_TEMPLATE_CHARS}"
        return [Fault(place, f"found {len(text)} characters, {wanted}")]
    try:
        parts = Template(text).parts
    except ValueError as error:
        return [Fault(place, f"{error}, wanted placeholders such as {{value:.3g}}")]
    return [
        Fault(place, message, text.find("{" + name) + 1)
        for _, name, spec in parts
        if name is not None and (message := _complaint(name, spec))
    ]


def _complaint(name: str, spec: str) -> str | None:
    for names, pattern, example in _FORMATS:
        if name in names:
            if pattern.fullmatch(spec):
                return None
            return f"found the format {spec!r} for {{{name}}}, wanted none or one {example}"
    return f"found the placeholder {{{name}}}, wanted one of {', '.join(sorted(PLACEHOLDERS))}"
