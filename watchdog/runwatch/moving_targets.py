"""Trainings whose loss has no level of its own, told by the names of their numbers.

The loss of a policy is measured against its own rewards, and that of a generator against its judge:
both rise while the training goes well.
"""

import re
from collections.abc import Iterable
from typing import Final

_REWARD: Final = re.compile(
    r"(?:^|[^a-z])(?:reward|ep_?rew|episode_?rewards?|episod(?:e|ic)_?return|averagereturn)(?:[^a-z]|$)"
    r"|ep_?rew_?mean",
    re.IGNORECASE,
)
"""Not `rewards/chosen`: a preference loss such as DPO's has a level."""
_RETURN: Final = re.compile(r"(?:.*[/ ])?(?:(?:mean|avg|average)_)?returns?", re.IGNORECASE)
_OF_A_POLICY: Final = re.compile(
    r"(?:.*[/ ])?(?:policy_loss|policy_gradient_loss|episodes?)", re.IGNORECASE
)
"""A return is a reward where a policy is told of beside it: else it may be one on money."""
_OF_A_MODEL: Final = re.compile(r"loss|acc|margin|model", re.IGNORECASE)
"""`reward_model_loss`, `reward_accuracy`: one that learns what a reward is has a level, too."""
_JUDGE: Final = re.compile(
    r"(?:^|.*[/ ])(?:d|dis|disc|discriminator|critic)[_ ]?loss|loss[_ /](?:d|disc|discriminator)",
    re.IGNORECASE,
)
_PLAYER: Final = re.compile(
    r"(?:^|.*[/ ])(?:g|gen|generator|actor)[_ ]?loss|loss[_ /](?:g|gen|generator)", re.IGNORECASE
)


def signs_of(names: Iterable[str]) -> list[str]:
    """The names, of all that a run records, that tell of a reward, or of two that play against each
    other; empty for a training whose loss has a level."""
    known = list(names)
    judge, player = _first(_JUDGE, known), _first(_PLAYER, known)
    if judge is not None and player is not None:
        return [judge, player]
    gained = _first(_RETURN, known)
    if gained is not None and _first(_OF_A_POLICY, known) is not None:
        return [gained]
    return [name for name in known if _REWARD.search(name) and not _OF_A_MODEL.search(name)][:1]


def return_of(names: Iterable[str]) -> str | None:
    """What a policy returns, where that is what tells of a moving target."""
    signs = signs_of(names)
    is_return = bool(signs) and signs[0].strip().lower().endswith(("return", "returns"))
    return signs[0] if is_return else None


def _first(form: re.Pattern[str], names: Iterable[str]) -> str | None:
    return next((name for name in names if form.fullmatch(name.strip())), None)
