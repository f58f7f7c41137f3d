"""The series that a rule can read without anyone having announced them."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

STAT_TEXTS: Final[Mapping[str, str]] = {
    "grad_norm": "Norm of the gradient, unscaled and before clipping, over its finite elements.",
    "grad_absmax": "Greatest magnitude in the gradient, of its finite elements.",
    "nonfinite": "How many elements of the gradient are NaN or infinite.",
    "zero_frac": "Share of the gradient's elements that are exactly zero, 0 to 1.",
    "param_norm": "Norm of the parameter.",
    "update_ratio": "How far the step moved the parameter, against its size; of 1024 elements.",
    # Of modules, where activations are asked for.
    "act_mean": "Mean of a module's output, over its finite elements.",
    "act_std": "Standard deviation of a module's output.",
    "act_absmax": "Greatest magnitude in a module's output.",
    "act_zero_frac": "Share of a module's output that is exactly zero, 0 to 1.",
    "act_nonfinite": "How many elements of a module's output are NaN or infinite.",
}
"""Of each layer (those of activations: of each module), and what each is; `make docs` writes them
into docs/reference/metrics.md."""
STATS: Final = frozenset(STAT_TEXTS)

METRIC_TEXTS: Final[Mapping[str, str]] = {
    "loss": "What `watch.step` was given.",
    "val_loss": "A validation loss, where `watch.log` or a framework gives one.",
    "loss_resolution": "Step between two losses as a log prints them, where it was imported.",
    "val_loss_resolution": "The same of `val_loss`.",
    "epoch": "How often all data were seen, where a log or a program counts it.",
    "reward": "What a policy is paid, where a program or a log tells it.",
    "lr": "Learning rate of the first group; `lr_1`, `lr_2`, ... of the others.",
    "lr_scale": "Multiplier that `lower_lr` put on the schedule; 1 where nothing was lowered.",
    "grad_norm": "Norm over all gradients, before clipping; NaN where one is not finite.",
    "clip_coef": "Factor by which clipping by the norm scaled the gradients; 1 where it did not.",
    "clipped": "1 where `clip_coef` is below 1.",
    "loss_scale": "Scale of AMP's gradient scaler.",
    "layers_with_grad": "How many layers had a gradient.",
    "frozen_layers": "How many layers that had been trained do not require a gradient now.",
    "optimizer_steps": "How many optimizer steps the row holds.",
    "untrained_layers": "How many layers are to be trained and never are; see LayersNotTrained.",
    "unreached_layers": "How many layers of an optimizer never had a gradient in 500 steps.",
    "eval_mode": "1 where the row's steps were made in evaluation mode, and others not.",
    "kept_gradients": "1 where an optimizer stepped by gradients that hold those of its last step.",
    "fresh_optimizers": "How many optimizers a resumed attempt began without their state.",
    "fresh_schedulers": "How many schedulers a resumed attempt began anew.",
    "unrestored_layers": "How many layers are not those of the checkpoint that was resumed.",
    "scaled_clip": "Threshold of a clip of gradients that still bore the loss scale.",
    "objective": "What is trained now, as a number that a program logs; see docs/rules.md.",
    "alternating": "1 where optimizers take turns in a step, as in a GAN, or there are rewards.",
    "guarded_steps": "Optimizer steps that the guard made to change nothing.",
    "guarded_outliers": "Of these, steps by gradients that were finite and far outside their past.",
    "guard_relearned": "Times that the guard took a ninth outlier for a new level.",
    "skipped": "1 where the gradient scaler skipped the step.",
    "step_time": "Seconds from step to step, phases left out.",
    "sampling_interval": "Steps from one reading of gradients to the next, under `max_overhead`.",
    "hook_share": "Share of a step's time that watching takes, 0 to 1, under `max_overhead`.",
    "tokens_per_s": "Tokens a second, where `watch.step` is told their number.",
    "param_norm": "Norm over all parameters.",
    "nonfinite": "How many elements of all gradients are NaN or infinite.",
    # Of the rank's process and its machine, once a second.
    "host_mem": "Resident bytes of the process that trains.",
    "host_mem_share": "Share in use of the machine's memory, or of a limit on the job, 0 to 1.",
    # Of a rank's first device, every few seconds, with `runwatch[nvml]`; `gpu_mem_1` of the second.
    "gpu_mem": "Bytes of the device's memory in use, by whomever; or as a program logs it.",
    "gpu_temp": "Temperature of the device, degrees Celsius; or as a program logs it.",
    "gpu_util": "Share of the last second in which the device ran a kernel, 0 to 1.",
    "gpu_throttled": "1 where heat, or a fault of power, holds the device's clocks down.",
    "gpu_ecc_errors": "Errors in the device's memory, not put right, since its driver loaded.",
    # What is before the attempt: see `background`.
    "lr_before": "Median of the last 8 learning rates of the attempt before.",
    "loss_before": "Median of the last 8 losses of the attempt before.",
    "step_before": "Last step of the attempt before.",
    "loss_mad_before": "Median absolute deviation of its last 32 losses.",
    "loss_of_chance": "Logarithm of the number of classes in the run's configuration.",
    # Events, counted in the row of their step.
    "unwatched": "Something that the hook cannot see began to be trained.",
    "unheeded": "Orders (a stop, a rollback) that the loop of the program does not follow.",
    "hook_faults": "Faults of the hook's own, kept from the training.",
    # Of each rank beside rank 0.
    "local_grad_norm": "Norm over the gradients that lie on this rank.",
    "local_nonfinite": "How many elements of this rank's gradients are NaN or infinite.",
    "replica_drift": "1 where fingerprints of the replicas' parameters differ.",
    # Of each rank, where there are several.
    "own_time": "Seconds that the rank worked by itself, before the backward where all wait.",
    "rank_lag": "Seconds that the rank works longer than the others, median of 32 steps.",
    "loss_gap": "Share of the others' loss by which the rank's lies above, median of 32 steps.",
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
