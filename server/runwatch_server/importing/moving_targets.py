"""Logs of trainings whose loss has no level of its own, told by what else they hold.

The loss of a policy is measured against its own rewards, and that of a generator against its judge:
both rise while the training goes well. The hook sees optimizers that take turns; of a log that was
read, the names say it, and `alternating` is recorded as the hook does.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from runwatch_server.importing.run_log import Entry

_ALTERNATING: Final = "alternating"
_REWARD: Final = re.compile(
    r"(?:^|[^a-z])(?:reward|ep_?rew|episode_?rewards?|episode_?return|averagereturn)(?:[^a-z]|$)"
    r"|ep_?rew_?mean",
    re.IGNORECASE,
)
"""Not `rewards/chosen`: a preference loss such as DPO's has a level."""
_JUDGE: Final = re.compile(
    r"(?:^|.*[/ ])(?:d|dis|disc|discriminator|critic)[_ ]?loss|loss[_ /](?:d|disc|discriminator)",
    re.IGNORECASE,
)
_PLAYER: Final = re.compile(
    r"(?:^|.*[/ ])(?:g|gen|generator|actor)[_ ]?loss|loss[_ /](?:g|gen|generator)", re.IGNORECASE
)


def mark(entries: list[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with `alternating`, where the names tell of a moving target, and why."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    told_by = [] if _ALTERNATING in names else _signs(names)
    if not told_by:
        return entries, ()
    marked = [replace(entry, values=_marked(entry.values)) for entry in entries]
    return marked, (f"{', '.join(told_by)}: the loss is not judged by its level",)


def _signs(names: list[str]) -> list[str]:
    """The names that tell of a reward, or of two that play against each other."""
    judge, player = _first(_JUDGE, names), _first(_PLAYER, names)
    if judge is not None and player is not None:
        return [judge, player]
    return [name for name in names if _REWARD.search(name)][:1]


def _first(form: re.Pattern[str], names: list[str]) -> str | None:
    return next((name for name in names if form.fullmatch(name.strip())), None)


def _marked(values: Mapping[str, float]) -> Mapping[str, float]:
    return {**values, _ALTERNATING: 1.0} if values else values
