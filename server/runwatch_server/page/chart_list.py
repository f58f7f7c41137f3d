"""Decides which metrics of a run are drawn together, and in what order. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runwatch.aliases import normal_form
from runwatch.series import METRIC_SPECS

_NAMES: Final = {name: spec.names for name, spec in METRIC_SPECS.items()}
_KNOWN: Final[tuple[tuple[str, tuple[str, ...], bool], ...]] = (
    ("Loss", (*_NAMES["loss"], *_NAMES["val_loss"]), False),
    ("Learning rate", (*_NAMES["lr"], "lr.1", "lr.2", "lr.3"), False),
    ("Learning rate against its schedule", ("lr_scale",), False),
    ("Gradient norm", _NAMES["grad_norm"], True),
    ("Gradients that are no finite number", ("nonfinite",), False),
    ("Loss scale", _NAMES["loss_scale"], True),
    ("Clipping", ("clip_coef", "clipped"), False),
    ("Parameter norm", ("param_norm",), False),
    ("Step time, seconds", (*_NAMES["step_time"], "data_time"), False),
    ("Tokens per second", _NAMES["tokens_per_s"], False),
    ("Host memory, bytes", ("host_mem",), False),
    ("Host memory, share in use", ("host_mem_share",), False),
    ("GPU memory", ("gpu_mem", "gpu_mem.1", "gpu_mem.2", "gpu_mem.3"), False),
)
"""Title, metrics, and whether a logarithmic axis shows them better."""

MOST_OPEN: Final = 12
"""Further charts are collapsed until they are opened."""


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """One chart; its `metrics` share an axis."""

    title: str
    metrics: tuple[str, ...]
    is_log: bool
    is_main: bool = False


def charts_of(names: Sequence[str]) -> list[ChartSpec]:
    """The charts that everybody looks at first, in that order, then the run's own metrics by name.
    The very first is drawn larger."""
    charts: list[ChartSpec] = []
    left = list(names)
    for title, metrics, is_log in _KNOWN:
        places = {
            name: metrics.index(form) for name in left if (form := normal_form(name)) in metrics
        }
        shown = tuple(sorted(places, key=places.__getitem__))
        if shown:
            charts.append(ChartSpec(title, shown, is_log, is_main=not charts))
        left = [name for name in left if name not in shown]
    return charts + [ChartSpec(name, (name,), is_log=False) for name in sorted(left)]
