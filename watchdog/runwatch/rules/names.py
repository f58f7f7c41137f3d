"""The series that a rule can read without anyone having announced them."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

STATS: Final = frozenset(
    ("grad_norm", "grad_absmax", "nonfinite", "zero_frac", "param_norm", "update_ratio")
)
"""Of each layer."""

METRICS: Final = frozenset(
    (
        "loss", "val_loss", "lr", "lr_scale", "grad_norm", "clip_coef", "clipped", "loss_scale",
        "layers_with_grad", "optimizer_steps", "alternating", "guarded_steps",
        "skipped", "step_time", "tokens_per_s", "param_norm", "nonfinite", "gpu_mem", "gpu_temp",
        "lr_before", "loss_before", "loss_of_chance",  # see `background`
        "unwatched", "hook_faults",  # events, counted in the row of their step
        "local_grad_norm", "local_nonfinite", "replica_drift",
    )
)  # fmt: skip
"""Of the run."""

STEP: Final = "step"
"""The number of the step, as a series that every row records."""

_LR_OF_GROUP: Final = re.compile(r"lr_[0-9]{1,3}")


def is_metric(name: str, announced: frozenset[str]) -> bool:
    """Whether a name is a metric's: one of the hook's, or one that the user announced."""
    return (
        name in METRICS or name == STEP or name in announced
        or _LR_OF_GROUP.fullmatch(name) is not None
    )  # fmt: skip


def comes_from_gradients(names: Iterable[str]) -> bool:
    """Whether any of these stats is made in the backward pass, which runs from the loss to the
    first layer: what breaks there breaks all layers before it."""
    return any(name.startswith("grad") or name == "nonfinite" for name in names)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (nearest: ...)` with the known name that is most like this one, or nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""
