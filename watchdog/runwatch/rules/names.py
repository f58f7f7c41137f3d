"""The series that a rule can read without anyone having announced them."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

STAT_TEXTS: Final[Mapping[str, str]] = {
    "grad_norm": "Norm of the gradient, unscaled and before clipping, over its finite elements.",
    "grad_absmax": "Greatest magnitude in the gradient; NaN or infinite if an element is.",
    "nonfinite": "How many elements of the gradient are NaN or infinite.",
    "zero_frac": "Share of the gradient's elements that are exactly zero, 0 to 1.",
    "param_norm": "Norm of the parameter.",
    "update_ratio": "How far the step moved the parameter, relative to its size; of 1024 elements.",
    # Of modules, where activations are asked for.
    "act_mean": "Mean of a module's output, over its finite elements.",
    "act_std": "Standard deviation of a module's output.",
    "act_absmax": "Greatest magnitude in a module's output; NaN or infinite if an element is.",
    "act_zero_frac": "Share of a module's output that is exactly zero, 0 to 1.",
    "act_nonfinite": "How many elements of a module's output are NaN or infinite.",
}
"""Of each layer (those of activations: of each module), and what each is; `make docs` writes them
into docs/reference/metrics.md."""
STATS: Final = frozenset(STAT_TEXTS)

METRIC_TEXTS: Final[Mapping[str, str]] = {
    "loss": "The loss passed to `watch.step`.",
    "val_loss": "A validation loss, if `watch.log` or a framework reports one.",
    "loss_resolution": "Distance to the next loss, if few digits or bits tell it.",
    "val_loss_resolution": "The same for `val_loss`.",
    "epoch": "Passes over the data, if a log or a program counts them.",
    "reward": "Reward of a policy, if a program or a log reports it.",
    "lr": "Learning rate of the first group; `lr_1` to `lr_127` of the others.",
    "lr_scale": "Multiplier that `lower_lr` put on the schedule; 1 if nothing was lowered.",
    "grad_norm": "Norm over all gradients, before clipping; NaN if one is not finite.",
    "clip_coef": "Factor by which clipping by the norm scaled the gradients; 1 if it did not.",
    "clipped": "1 if `clip_coef` is below 1.",
    "loss_scale": "Scale of AMP's gradient scaler.",
    "layers_with_grad": "How many layers had a gradient.",
    "frozen_layers": "How many layers were trained before and do not require a gradient now.",
    "optimizer_steps": "How many optimizer steps the row contains.",
    "untrained_layers": "How many layers should be trained and never are; see LayersNotTrained.",
    "unreached_layers": "How many layers of an optimizer never had a gradient in 500 steps.",
    "eval_mode": "1 if these steps were in evaluation mode, and earlier ones were not.",
    "kept_gradients": "1 if an optimizer stepped with gradients that contain its last step's.",
    "fresh_optimizers": "How many optimizers of a resumed attempt had no state at its start.",
    "fresh_schedulers": "How many schedulers of a resumed attempt started anew.",
    "unrestored_layers": "How many layers differ from the checkpoint that was resumed.",
    "scaled_clip": "Threshold of a clip of gradients that were not unscaled yet.",
    "objective": "What is trained now, as a number that the program logs; see docs/rules.md.",
    "alternating": "1 if optimizers take turns, as in a GAN, or there are rewards.",
    "guarded_steps": "Optimizer steps that the guard stopped from changing anything.",
    "guarded_outliers": "Of these, steps with finite gradients that were far outside their past.",
    "guard_relearned": "How often the guard accepted a ninth outlier as a new level.",
    "skipped": "1 if the gradient scaler skipped the step.",
    "step_time": "Seconds from step to step, without phases.",
    "sampling_interval": "Steps from one reading of gradients to the next, with `max_overhead`.",
    "hook_share": "Share of a step's time that watching takes, 0 to 1, with `max_overhead`.",
    "tokens_per_s": "Tokens per second, if `watch.step` gets their number.",
    "param_norm": "Norm over all parameters.",
    "nonfinite": "How many elements of all gradients are NaN or infinite.",
    # Of the rank's process and its machine, once a second.
    "host_mem": "Resident bytes of the training process.",
    "host_mem_share": "Share in use of the machine's memory, or of a limit on the job, 0 to 1.",
    # Of a rank's first device, every few seconds, with `runwatch[nvml]`; `gpu_mem_1` of the second.
    "gpu_mem": "Bytes of the device's memory in use, by any process; or as a program logs it.",
    "gpu_temp": "Temperature of the device, degrees Celsius; or as a program logs it.",
    "gpu_util": "Share of the last second in which the device ran a kernel, 0 to 1.",
    "gpu_throttled": "1 if heat or a power fault slows the device's clocks.",
    "gpu_ecc_errors": "Uncorrected errors in the device's memory since its driver was loaded.",
    # What is before the attempt: see `background`.
    "lr_before": "Median of the last 8 learning rates of the attempt before.",
    "loss_before": "Median of the last 8 losses of the attempt before.",
    "step_before": "Last step of the attempt before.",
    "loss_mad_before": "Median absolute deviation of its last 32 losses.",
    "loss_of_chance": "Logarithm of the number of classes, by the configuration or the head.",
    # Events, counted in the row of their step.
    "unwatched": "How often a part of the training became invisible to the hook.",
    "unheeded": "Commands (a stop, a rollback) that the training loop did not follow.",
    "hook_faults": "Faults of the hook itself, which do not affect the training.",
    "rows_lost": "How often rows, or layers' numbers in them, were lost on the way to the service.",
    "clock_off": "How often the rank's clock was found 5 s or more off the service's.",
    # Of each rank beside rank 0.
    "local_grad_norm": "Norm over the gradients on this rank.",
    "local_nonfinite": "How many elements of this rank's gradients are NaN or infinite.",
    "replica_drift": "1 if fingerprints of the replicas' parameters differ.",
    # Of each rank, where there are several.
    "own_time": "Seconds that the rank worked before its backward pass, where all wait.",
    "rank_lag": "Seconds that the rank works longer than the others, median of 32 steps.",
    "loss_gap": "How far the rank's loss is above the others', as a share; median of 32 steps.",
}
"""Of the run, and what each is."""
METRICS: Final = frozenset(METRIC_TEXTS)

STEP: Final = "step"
"""The number of the step, as a series that every row records."""

_OF_ANOTHER: Final = re.compile(
    r"(lr|gpu_mem|gpu_temp|gpu_util|gpu_throttled|gpu_ecc_errors)_[0-9]{1,3}"
)
"""Of another parameter group, or another device of the rank, than the first."""


def is_metric(name: str, announced: frozenset[str]) -> bool:
    """Whether a name is a metric's: one of the hook's, or one that the user announced."""
    return (
        name in METRICS or name == STEP or name in announced
        or _OF_ANOTHER.fullmatch(name) is not None
    )  # fmt: skip


def comes_from_gradients(names: Iterable[str]) -> bool:
    """Whether any of these stats is made in the backward pass, which runs from the loss to the
    first layer: what breaks there breaks all layers before it."""
    return any(name.startswith("grad") or name == "nonfinite" for name in names)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (nearest: ...)` with the known name that is most like this one, or nothing."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""
