"""Marks logs of trainings whose loss has no meaningful level, recognised by what else they hold.

The hook sees optimizers that take turns, or a reward that it is given. For a log, the names show
it, and `alternating` is recorded as the hook does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from runwatch.moving_targets import signs_of
from runwatch_server.importing.run_log import Entry

_ALTERNATING: Final = "alternating"


def mark(entries: list[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with `alternating` if the names show a moving target, and a note of
    why."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    told_by = [] if _ALTERNATING in names else signs_of(names)
    if not told_by:
        return entries, ()
    marked = [replace(entry, values=_marked(entry.values)) for entry in entries]
    return marked, (f"{', '.join(told_by)}: the loss is not judged by its level",)


def _marked(values: Mapping[str, float]) -> Mapping[str, float]:
    return {**values, _ALTERNATING: 1.0} if values else values
