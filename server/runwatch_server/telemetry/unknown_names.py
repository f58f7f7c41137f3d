"""A name that a run does not have, told beside those that it has."""

from collections.abc import Collection
from itertools import islice
from typing import Final

from runwatch.rules.names import nearest
from runwatch_server.errors import NotFoundError

_MOST_NAMED: Final = 12
_MOST_COMPARED: Final = 2000
"""Comparing takes some microseconds a name, and a model may have very many layers."""
_LONGEST: Final = 256
"""Characters of the name that are told again; a longer one resembles none of ours."""


def unknown_name(code: str, what: str, name: str, known: Collection[str]) -> NotFoundError:
    """`what` says of which kind the name is; `known` are the run's own, in any order."""
    is_short = len(name) <= _LONGEST
    hint = nearest(name, islice(known, _MOST_COMPARED)) if is_short else ""
    return NotFoundError(code, f"The run has no {what} {name[:_LONGEST]!r}{hint}. {_those(known)}")


def _those(known: Collection[str]) -> str:
    if not known:
        return "It has none yet."
    more = len(known) - _MOST_NAMED
    rest = f" and {more} more, as /metrics of the run lists them" if more > 0 else ""
    return f"It has {', '.join(islice(known, _MOST_NAMED))}{rest}."
