"""Marks logs of trainings whose loss has no meaningful level, recognised by what else they hold.

The hook sees optimizers that take turns, or a reward that it is given. For a log, the names show
it, and `alternating` is recorded as the hook does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from runwatch.aliases import series_of
from runwatch.moving_targets import signs_of
from runwatch_server.importing.run_log import Entry

_ALTERNATING: Final = "alternating"
_REWARD: Final = "reward"


def mark(entries: list[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with `alternating` if the names show a moving target, and a note of why. What a
    policy returns is its reward, if the log tells no other."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    told_by = [] if _ALTERNATING in names else signs_of(names)
    if not told_by:
        return entries, ()
    marked = [replace(entry, values=_marked(entry.values)) for entry in entries]
    notes = (f"{', '.join(told_by)}: the loss is not judged by its level",)
    gained = told_by[0]
    if not _is_a_return(gained) or any(series_of(name) == _REWARD for name in names):
        return marked, notes
    renamed = [replace(entry, values=_with_reward(entry.values, gained)) for entry in marked]
    return renamed, (*notes, f"{gained} is read as {_REWARD}")


def _is_a_return(name: str) -> bool:
    return name.strip().lower().endswith(("return", "returns"))


def _with_reward(values: Mapping[str, float], gained: str) -> Mapping[str, float]:
    return {_REWARD if name == gained else name: value for name, value in values.items()}


def _marked(values: Mapping[str, float]) -> Mapping[str, float]:
    return {**values, _ALTERNATING: 1.0} if values else values
