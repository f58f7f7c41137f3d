"""Which of the names that programs give to their numbers mean a series that rules read."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from runwatch.moving_targets import return_of
from runwatch.series import METRIC_SPECS, Role

_A_LOSS: Final = re.compile(r"(?:^|[^a-z])loss(?:es)?(?:[^a-z]|$)", re.IGNORECASE)
_OF_EVALUATION: Final = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev)")
_WORDS_OF_A_WHOLE: Final = frozenset((
    "loss", "losses", "train", "training", "trn", "avg", "average", "mean", "running", "smoothed",
    "ema", "total", "local", "global", "current", "epoch", "step", "iter", "iteration", "batch",
    "so", "far", "raw", "ce", "crossentropy", "xent", "nll", "mse", "mae", "l1", "l2", "bce", "lm",
    "mlm", "ctc",
))  # fmt: skip
"""What may be said of a whole loss: `avg loss so far`, `train_loss_local`, `ce_loss`."""
_LOSS: Final = "loss"
_REWARD: Final = "reward"
_WITH_ALIASES: Final = tuple(spec for spec in METRIC_SPECS.values() if spec.aliases)
_SERIES_OF_FORM: Final[Mapping[str, str]] = {
    form: spec.name for spec in _WITH_ALIASES for form in spec.names
}


def normal_form(name: str) -> str:
    """A name in lower case, with underscores for blanks."""
    return re.sub(r"\s+", "_", name.strip().lower())


@lru_cache(4096)  # the same few names are asked for at every row
def series_of(name: str) -> str | None:
    """The series that programs mean by a name; None if rules know none by it."""
    return _SERIES_OF_FORM.get(normal_form(name))


def role_of(name: str) -> Role:
    """The role of the series that programs mean by a name."""
    spec = METRIC_SPECS.get(series_of(name) or name)
    return Role.OTHER if spec is None else spec.role


def resolve(names: Iterable[str]) -> dict[str, str]:
    """Which of a run's names means each series: theirs by ours.

    A series' own name is preferred, then its aliases in their order. Without any of them, the only
    loss of a training is its loss, unless its name is that of a part, and what a policy returns is
    its reward.
    """
    return dict(_resolved(tuple(names)))


@lru_cache(1024)  # a log has the same names in all its lines, and a run in all its frames
def _resolved(names: tuple[str, ...]) -> Mapping[str, str]:
    known = by_form(names)
    found = {
        spec.name: theirs
        for spec in _WITH_ALIASES
        if (theirs := first_of(known, spec.names)) is not None
    }
    if _LOSS not in found and (whole := _only_loss(names)) is not None:
        found[_LOSS] = whole
    if _REWARD not in found and (gained := return_of(names)) is not None:
        found[_REWARD] = gained
    return found


def by_form(names: Iterable[str]) -> dict[str, str]:
    """Names by their normal form, and by themselves: of several spellings the first, or the one
    that is asked for exactly."""
    names = list(names)
    forms = {normal_form(name): name for name in reversed(names)}
    return forms | {name: name for name in names}


def first_of(known: Mapping[str, str], wanted: Iterable[str]) -> str | None:
    """The name behind the first wanted form that is known."""
    return next((known[form] for form in wanted if form in known), None)


def is_a_loss(name: str) -> bool:
    """Whether a name is that of a loss, of the whole or of a part."""
    return _A_LOSS.search(name) is not None


def _only_loss(names: Iterable[str]) -> str | None:
    losses = [
        name for name in names if is_a_loss(name) and not _OF_EVALUATION.search(normal_form(name))
    ]
    if len(losses) != 1:
        return None
    words = re.findall(r"[a-z\d]+", normal_form(losses[0]).replace("cross_entropy", "crossentropy"))
    return losses[0] if _WORDS_OF_A_WHOLE.issuperset(words) else None
