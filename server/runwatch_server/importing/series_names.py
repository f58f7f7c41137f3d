"""The names that programs give to common series, and our names for them."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from runwatch.aliases import by_form, first_of, resolve
from runwatch.series import METRIC_SPECS, METRICS, STATS
from runwatch_server.importing.errors import LogError

MAX_SERIES: Final = 20_000
"""Of a log: ten times as many metrics as a run may have, or seven stats of 2800 layers."""
_STEP_NAMES: Final = (
    "global_step", "train/global_step", "trainer/global_step", "step", "iteration", "iterations",
    "iter", "it", "num_updates", "train/step", "total_timesteps", "time/total_timesteps",
    "num_timesteps", "timesteps_total", "misc/total_timesteps", "timestepssofar", "timesteps",
    "timestep", "current_steps", "_step",
)  # fmt: skip
"""A count over the run takes precedence over one that may start over in each epoch, and the
optimizer's over the logger's: W&B counts its own calls in `_step`."""

EPOCH: Final = "epoch"

_TIME_NAMES: Final = ("timestamp", "_timestamp", "wall_time", "walltime")

_STAT_OF_LAYER: Final = re.compile(
    rf"(?P<stat>{'|'.join(sorted(STATS))}|grad_2(?:\.0)?_norm)/(?P<layer>.+)"
)
_NO_LAYERS: Final = frozenset(("total", "all", "global", "mean", "max", "min"))

_OF_TRAINING: Final = re.compile(
    r"(?:^|[^a-z])(?:loss(?:es)?|rewards?|accuracy|perplexity)(?:[^a-z]|$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class StatOfLayer:
    stat: str
    layer: str


@dataclass(frozen=True, slots=True)
class NameMap:
    """What each of a log's names means."""

    metrics: Mapping[str, str]
    """Our names by the log's."""
    stats: Mapping[str, StatOfLayer]
    notes: tuple[str, ...]

    @property
    def is_of_training(self) -> bool:
        """Whether any name is about training: one that rules know, a loss of some kind, as in a log
        with only parts of a loss (`train/box_loss`, `Gen Loss`), or the goal of training (`mean
        reward`)."""
        return bool(self.known_series) or any(map(_OF_TRAINING.search, self.metrics))

    @property
    def known_series(self) -> frozenset[str]:
        """The log's names of series that rules know without being told of them. An epoch is not
        one: it says where a row is, and not how the training goes."""
        of_run = (
            theirs for theirs, ours in self.metrics.items() if ours in METRICS and ours != EPOCH
        )
        return frozenset((*of_run, *self.stats))


def check_number(names: Collection[str], place: str = "") -> None:
    """Raises LogError for more names than a log may have: what is made of each takes a while."""
    if len(names) > MAX_SERIES:
        some = ", ".join(repr(name[:40]) for name in islice(names, 3))
        raise LogError(
            place, f"found {len(names)} series ({some}, ...), wanted at most {MAX_SERIES}"
        )


def map_names(names: Iterable[str]) -> NameMap:
    """Map each of a log's names to ours. An unknown name stays as it is, and so does each other
    spelling of a name that is already taken. Raises LogError for too many."""
    names = list(names)
    check_number(names)
    stats = _stats(names)
    others = [name for name in names if name not in stats]
    ours = {theirs: ours for ours, theirs in resolve(others).items()}
    notes = [f"{theirs} is read as {mine}" for theirs, mine in ours.items() if theirs != mine]
    if stats:
        num_layers = len({found.layer for found in stats.values()})
        notes.append(f"{len(stats)} columns are read as stats of {num_layers} layers")
    metrics = {name: ours.get(name, name) for name in others}
    return NameMap(metrics, stats, tuple(notes))


def find_step(names: Iterable[str]) -> str | None:
    """Which of a log's names counts steps."""
    return _first(names, _STEP_NAMES)


def find_epoch(names: Iterable[str]) -> str | None:
    """Which of a log's names counts epochs."""
    return _first(names, METRIC_SPECS[EPOCH].names)


def find_time(names: Iterable[str]) -> str | None:
    """Which of a log's names is a time in Unix seconds."""
    return _first(names, _TIME_NAMES)


def _first(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    return first_of(by_form(names), wanted)


def _stats(names: Iterable[str]) -> dict[str, StatOfLayer]:
    """The stats of layers by name; of two spellings of one stat, the first counts."""
    by_stat: dict[StatOfLayer, str] = {}
    for name in names:
        if (found := _stat_of(name)) is not None:
            by_stat.setdefault(found, name)
    return {name: found for found, name in by_stat.items()}


def _stat_of(name: str) -> StatOfLayer | None:
    match = _STAT_OF_LAYER.fullmatch(name.strip())
    if match is None or match["layer"].lower() in _NO_LAYERS:
        return None
    stat = match["stat"] if match["stat"] in STATS else "grad_norm"
    return StatOfLayer(stat, match["layer"])
