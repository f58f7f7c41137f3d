"""The names that programs give to common series, and our names for them."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

from runwatch.series import METRICS, STATS
from runwatch.usual_names import USUAL_NAMES, normal_form
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
_EPOCH_NAMES: Final = ("epoch", "train/epoch", "epochs")

_TIME_NAMES: Final = ("timestamp", "_timestamp", "wall_time", "walltime")

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "loss": (
        "loss", "train_loss", "train/loss", "training_loss", "loss/train", "training/loss",
        "train_loss_step", "train/loss_step", "lm_loss", "lm_loss_training", "loss_train",
        "total_loss", "train/total_loss", "train_total_loss", "loss_total", "loss/total",
        "trainloss", "train_loss_epoch", "epoch_loss", "avg_loss", "mean_loss",
        "train_loss_batch", "train_batch_loss", "train_loss_mean", "train_avg_loss",
        "train_mean_loss", "avg_train_loss", "mean_train_loss", "average_loss",
        "average_train_loss", "average_training_loss", "running_loss", "batch_loss",
        "metrics/train_loss", "metrics/loss", "loss_step", "loss_epoch", "step_loss", "avr_loss",
        "reduced_train_loss", "lm_loss_value", "train/crossentropyloss", "loss/train/total",
        "train_loss/train/total",
    ),
    "val_loss": USUAL_NAMES["val_loss"],
    "lr": (
        "lr", "learning_rate", "train/learning_rate", "train/lr", "learningrate", "lr-adam",
        "lr-adamw", "lr-sgd", "lr-adam/pg1", "lr-adamw/pg1", "lr-sgd/pg1", "train_lr", "lr/pg0",
        "x/lr0",
    ),
    "grad_norm": (
        "grad_norm", "gnorm", "train/grad_norm", "gradient_norm", "global_grad_norm",
        "total_grad_norm", "grad_norm/total", "grad_norm_total", "grad_2.0_norm_total",
        "grad_2.0_norm/total", "norm", "gradnorm", "optim/total_grad_norm",
    ),
    EPOCH: _EPOCH_NAMES,
    "reward": USUAL_NAMES["reward"],
    "loss_scale": ("loss_scale", "train/loss_scale", "grad_scale", "amp_scale"),
    "step_time": ("step_time", "iter_time", "iteration_time", "step_time_s", "time_per_step"),
    "tokens_per_s": (
        "tokens_per_s", "tokens_per_sec", "tokens_per_second", "tokens/s", "tokens/sec", "tok/s",
        "train_tokens_per_second", "train/tokens_per_sec",
    ),
}  # fmt: skip
"""In order of preference: if a log has several, the first is used, and the rest keep their own
names."""

_STAT_OF_LAYER: Final = re.compile(
    rf"(?P<stat>{'|'.join(sorted(STATS))}|grad_2(?:\.0)?_norm)/(?P<layer>.+)"
)
_NO_LAYERS: Final = frozenset(("total", "all", "global", "mean", "max", "min"))


_A_LOSS: Final = re.compile(r"(?:^|[^a-z])loss(?:es)?(?:[^a-z]|$)", re.IGNORECASE)
_OF_TRAINING: Final = re.compile(
    r"(?:^|[^a-z])(?:loss(?:es)?|rewards?|accuracy|perplexity)(?:[^a-z]|$)", re.IGNORECASE
)


_OF_EVALUATION: Final = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev)")
_WORDS_OF_A_WHOLE: Final = frozenset((
    "loss", "losses", "train", "training", "trn", "avg", "average", "mean", "running", "smoothed",
    "ema", "total", "local", "global", "current", "epoch", "step", "iter", "iteration", "batch",
    "so", "far", "raw", "ce", "crossentropy", "xent", "nll", "mse", "mae", "l1", "l2", "bce", "lm",
    "mlm", "ctc",
))  # fmt: skip
"""What may be said of a whole loss: `avg loss so far`, `train_loss_local`, `ce_loss`."""


_METRIC_OF_FORM: Final[Mapping[str, str]] = {
    synonym: metric for metric, synonyms in _SYNONYMS.items() for synonym in synonyms
}


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
    ours: dict[str, str] = {}
    for metric, synonyms in _SYNONYMS.items():
        chosen = _first(others, synonyms)
        if chosen is not None:
            ours[chosen] = metric
    if "loss" not in ours.values() and (whole := _only_loss(others)) is not None:
        ours[whole] = "loss"
    notes = [f"{theirs} is read as {mine}" for theirs, mine in ours.items() if theirs != mine]
    if stats:
        num_layers = len({found.layer for found in stats.values()})
        notes.append(f"{len(stats)} columns are read as stats of {num_layers} layers")
    metrics = {name: ours.get(name, name) for name in others}
    return NameMap(metrics, stats, tuple(notes))


@lru_cache(4096)  # a log asks for the same few names at every line
def metric_of(name: str) -> str | None:
    """Our name, if programs use this name for a series that rules know."""
    return _METRIC_OF_FORM.get(normal_form(name))


def is_a_loss(name: str) -> bool:
    """Whether a name is that of a loss, of the whole or of a part."""
    return _A_LOSS.search(name) is not None


def _only_loss(names: Iterable[str]) -> str | None:
    """The loss of a log that has no other of its training, unless its name is that of a part."""
    losses = [
        name for name in names if is_a_loss(name) and not _OF_EVALUATION.search(normal_form(name))
    ]
    if len(losses) != 1:
        return None
    words = re.findall(r"[a-z\d]+", normal_form(losses[0]).replace("cross_entropy", "crossentropy"))
    return losses[0] if _WORDS_OF_A_WHOLE.issuperset(words) else None


def find_step(names: Iterable[str]) -> str | None:
    """Which of a log's names counts steps."""
    return _first(list(names), _STEP_NAMES)


def find_epoch(names: Iterable[str]) -> str | None:
    """Which of a log's names counts epochs."""
    return _first(list(names), _EPOCH_NAMES)


def find_time(names: Iterable[str]) -> str | None:
    """Which of a log's names is a time in Unix seconds."""
    return _first(list(names), _TIME_NAMES)


def _first(names: list[str], wanted: tuple[str, ...]) -> str | None:
    """The first wanted name that exists; of several spellings, the one that is spelled as
    wanted."""
    by_form = {normal_form(name): name for name in reversed(names)}
    by_form |= {name: name for name in names}
    return next((by_form[form] for form in wanted if form in by_form), None)


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
