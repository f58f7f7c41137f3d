"""Formats values for the page. No I/O."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from markupsafe import Markup, escape

from runwatch.number_texts import count, counted, number
from runwatch_server.clock import rfc3339

_FIRST_CLOCK_S: Final = 366 * 86_400.0
"""A log without times counts its rows as seconds from 0, so an earlier time is not from a clock."""

_BIDI_CONTROLS: Final = {
    code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Embeddings, overrides and isolates. The marks (U+200E, U+200F) turn around nothing by themselves,
and belong into names that are written from right to left."""


class Verbatim(str):
    """A text that is not for reading: what a form sends back as it came."""


def readable(value: object) -> object:
    """A text that reads in the order in which it is written: instead of the controls by which a
    name turns around what stands beside them (`gpj.exe` as "exe.jpg"; "Trojan Source",
    CVE-2021-42574) stand their code points. What is no plain text is left as it is."""
    if not isinstance(value, str) or isinstance(value, Verbatim | Markup):
        return value
    return value.translate(_BIDI_CONTROLS)


def moment(at: float | datetime | None) -> Markup:
    """A time as the page's script shows it: how long ago, with the exact time on hovering; without
    scripts, in UTC. A dash if it is unknown."""
    if at is None:
        return Markup("–")
    when = at if isinstance(at, datetime) else rfc3339(at)
    if when.timestamp() < _FIRST_CLOCK_S:
        return Markup('<span title="the log tells no times">–</span>')
    return Markup('<time datetime="{}" data-ago>{} UTC</time>').format(
        when.isoformat(), when.strftime("%Y-%m-%d %H:%M:%S")
    )


def iso(at: float | datetime) -> str:
    """A time for the `datetime` attribute of <time>."""
    return (at if isinstance(at, datetime) else rfc3339(at)).isoformat()


def days(value: float | None) -> str:
    """How long something is kept; 0 and infinity mean for ever, None that another setting
    decides."""
    if value is None:
        return "–"
    if value == 0 or math.isinf(value):
        return "for ever"
    return "1 day" if value == 1 else f"{number(value, 10)} days"


def size(num_bytes: int) -> str:
    """A size in a readable unit: `12.35 MiB`."""
    exponent = min(3, max(0, num_bytes.bit_length() - 1) // 10)
    unit = ("bytes", "KiB", "MiB", "GiB")[exponent]
    return f"{number(num_bytes / 1024**exponent)} {unit}"


def told(value: object) -> str:
    """The detail of an audit entry in words: without brackets, quotes, or anything that is
    empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return _told_facts(cast(dict[str, object], value))
    if isinstance(value, list | tuple):
        return ", ".join(told(one) for one in cast(Sequence[object], value))
    return str(value)


def _told_facts(facts: Mapping[str, object]) -> str:
    """The facts in words; an action's kind comes first, without its name."""
    told_facts = [
        f"{words(name)} {told(value)}"
        for name, value in facts.items()
        if name != "kind" and value not in (None, "")
    ]
    return ", ".join([words(facts["kind"]), *told_facts] if "kind" in facts else told_facts)


def words(name: object) -> str:
    """An identifier as words: `not_recovered` as "not recovered"."""
    return str(name).replace("_", " ")


def capitalize_first(text: str) -> str:
    """Capitalize only the first letter: `NaN` and `LR` inside stay as they are."""
    return text[:1].upper() + text[1:]


def verbatim(text: str) -> Verbatim:
    return Verbatim(text)


def severity(name: str) -> Markup:
    """A severity by word and shape, so that it can be recognised without colour."""
    return Markup('<span class="severity severity-{0}">{0}</span>').format(escape(name))


ALL: Final[Mapping[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        moment,
        iso,
        number,
        count,
        counted,
        days,
        size,
        told,
        words,
        severity,
        verbatim,
        capitalize_first,
    )
}
