"""What a series is: one entry of a table for each that the hook records or that rules read.

All that must know a property of a series reads it here: rules live and from files, importers, the
page, the list of runs, NonFinite, the joining of shards, diagnosis, and the hook's readers of
gradients. A new series is one entry.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Role(StrEnum):
    """What a series is to a training."""

    LOSS = "loss"
    EVALUATION_LOSS = "evaluation loss"
    REWARD = "reward"
    RATE = "learning rate"
    GRADIENT_NORM = "gradient norm"
    LOSS_SCALE = "loss scale"
    OTHER = "other"


class Source(StrEnum):
    """What a series is measured on."""

    GRADIENT = "gradient"
    PARAMETER = "parameter"
    ACTIVATION = "activation"
    PROGRAM = "program"
    """Reported by the program, or found elsewhere."""


class Join(StrEnum):
    """How the numbers of parts become the number of the whole: of a tensor's shards for a stat, of
    all layers for a metric."""

    NORM = "norm"
    """Root of the sum of squares."""
    MAX = "max"
    SUM = "sum"
    MEAN = "mean"
    """Weighted by the parts' numbers of elements."""


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One series."""

    name: str
    text: str
    """What it is, as the reference describes it."""
    _: KW_ONLY
    unit: str = ""
    role: Role = Role.OTHER
    source: Source = Source.PROGRAM
    aliases: tuple[str, ...] = ()
    """Names that programs give to the series, in order of preference after its own, in normal form
    (see `aliases`)."""
    noun: str = ""
    """What an alert calls the series of a run in which it is not finite."""
    is_scaled: bool = False
    """Whether the loss scale multiplies it, and has to be divided out."""
    is_count: bool = False
    """Whether it counts elements that are not finite, and so is sound only at 0."""
    is_guarded: bool = False
    """Whether NonFinite judges it. Losses are guarded as well, by their names."""
    counted_by: str = ""
    """The series that counts the elements that this one leaves out because they are not finite."""
    join: Join | None = None
    """None for what is not made of parts."""
    follows_objective: bool = False
    """Whether its level depends on the objective, so that its windows start anew with another."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its own name and its aliases, in order of preference."""
        return (self.name, *self.aliases)


def _by_name(*specs: SeriesSpec) -> Mapping[str, SeriesSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})


_LOSSES: Final = (
    "train_loss", "train/loss", "training_loss", "loss/train", "training/loss",
    "train_loss_step", "train/loss_step", "lm_loss", "lm_loss_training", "loss_train",
    "total_loss", "train/total_loss", "train_total_loss", "loss_total", "loss/total",
    "trainloss", "train_loss_epoch", "epoch_loss", "avg_loss", "mean_loss",
    "train_loss_batch", "train_batch_loss", "train_loss_mean", "train_avg_loss",
    "train_mean_loss", "avg_train_loss", "mean_train_loss", "average_loss",
    "average_train_loss", "average_training_loss", "running_loss", "batch_loss",
    "metrics/train_loss", "metrics/loss", "loss_step", "loss_epoch", "step_loss", "avr_loss",
    "reduced_train_loss", "lm_loss_value", "train/crossentropyloss", "loss/train/total",
    "train_loss/train/total",
)  # fmt: skip
_EVALUATION_LOSSES: Final = (
    "eval_loss", "eval/loss", "val/loss", "valid_loss", "validation_loss", "valid/loss",
    "validation/loss", "loss/val", "loss/valid", "loss/validation", "loss/eval",
    "val_loss_epoch", "loss_val", "val_total_loss", "valloss", "avg_val_loss",
    "average_val_loss", "average_validation_loss", "dev_loss", "test_loss", "test/loss",
    "testloss", "metrics/val_loss", "val._loss", "valid._loss", "eval/crossentropyloss",
)  # fmt: skip
_REWARDS: Final = (
    "train/reward", "mean_reward", "reward_mean", "episode_reward", "episode_return",
    "ep_rew_mean", "rollout/ep_rew_mean", "eprewmean", "episode_reward_mean", "averagereturn",
    "average_return", "episodic_return", "charts/episodic_return", "train/episode_reward",
)  # fmt: skip
_RATES: Final = (
    "learning_rate", "train/learning_rate", "train/lr", "learningrate", "lr-adam", "lr-adamw",
    "lr-sgd", "lr-adam/pg1", "lr-adamw/pg1", "lr-sgd/pg1", "train_lr", "lr/pg0", "x/lr0",
)  # fmt: skip
_GRADIENT_NORMS: Final = (
    "gnorm", "train/grad_norm", "gradient_norm", "global_grad_norm", "total_grad_norm",
    "grad_norm/total", "grad_norm_total", "grad_2.0_norm_total", "grad_2.0_norm/total",
    "norm", "gradnorm", "optim/total_grad_norm",
)  # fmt: skip
_SPEEDS: Final = (
    "tokens_per_sec", "tokens_per_second", "tokens/s", "tokens/sec", "tok/s",
    "train_tokens_per_second", "train/tokens_per_sec",
)  # fmt: skip


STAT_SPECS: Final = _by_name(
    SeriesSpec(
        "grad_norm",
        "Norm of the gradient, unscaled and before clipping, over its finite elements.",
        source=Source.GRADIENT,
        role=Role.GRADIENT_NORM,
        is_scaled=True,
        is_guarded=True,
        counted_by="nonfinite",
        join=Join.NORM,
        follows_objective=True,
    ),
    SeriesSpec(
        "grad_absmax",
        "Greatest magnitude in the gradient; NaN or infinite if an element is.",
        source=Source.GRADIENT,
        is_scaled=True,
        is_guarded=True,
        counted_by="nonfinite",
        join=Join.MAX,
        follows_objective=True,
    ),
    SeriesSpec(
        "nonfinite",
        "How many elements of the gradient are NaN or infinite.",
        source=Source.GRADIENT,
        is_count=True,
        is_guarded=True,
        join=Join.SUM,
    ),
    SeriesSpec(
        "zero_frac",
        "Share of the gradient's elements that are exactly zero, 0 to 1.",
        source=Source.GRADIENT,
        counted_by="nonfinite",
        join=Join.MEAN,
    ),
    SeriesSpec(
        "param_norm",
        "Norm of the parameter.",
        source=Source.PARAMETER,
        is_guarded=True,
        join=Join.NORM,
    ),
    SeriesSpec(
        "update_ratio",
        "How far the step moved the parameter, relative to its size; of 1024 elements.",
        source=Source.PARAMETER,
        join=Join.NORM,
    ),
    # Of modules, where activations are asked for.
    SeriesSpec(
        "act_mean",
        "Mean of a module's output, over its finite elements.",
        source=Source.ACTIVATION,
        counted_by="act_nonfinite",
    ),
    SeriesSpec(
        "act_std",
        "Standard deviation of a module's output.",
        source=Source.ACTIVATION,
        counted_by="act_nonfinite",
    ),
    SeriesSpec(
        "act_absmax",
        "Greatest magnitude in a module's output; NaN or infinite if an element is.",
        source=Source.ACTIVATION,
        counted_by="act_nonfinite",
    ),
    SeriesSpec(
        "act_zero_frac",
        "Share of a module's output that is exactly zero, 0 to 1.",
        source=Source.ACTIVATION,
        counted_by="act_nonfinite",
    ),
    SeriesSpec(
        "act_nonfinite",
        "How many elements of a module's output are NaN or infinite.",
        source=Source.ACTIVATION,
        is_count=True,
    ),
)
"""Of each layer; those of activations: of each module."""

METRIC_SPECS: Final = _by_name(
    SeriesSpec(
        "loss",
        "The loss passed to `watch.step`.",
        role=Role.LOSS,
        follows_objective=True,
        aliases=_LOSSES,
    ),
    SeriesSpec(
        "val_loss",
        "A validation loss, if `watch.log` or a framework reports one.",
        role=Role.EVALUATION_LOSS,
        follows_objective=True,
        aliases=_EVALUATION_LOSSES,
    ),
    SeriesSpec("loss_resolution", "Distance to the next loss, if few digits or bits tell it."),
    SeriesSpec("val_loss_resolution", "The same for `val_loss`."),
    SeriesSpec(
        "epoch",
        "Passes over the data, if a log or a program counts them.",
        aliases=(
            "train/epoch",
            "epochs",
        ),
    ),
    SeriesSpec(
        "reward",
        "Reward of a policy, if a program or a log reports it.",
        role=Role.REWARD,
        aliases=_REWARDS,
    ),
    SeriesSpec(
        "lr",
        "Learning rate of the first group; `lr_1` to `lr_127` of the others.",
        role=Role.RATE,
        aliases=_RATES,
    ),
    SeriesSpec(
        "lr_scale", "Multiplier that `lower_lr` put on the schedule; 1 if nothing was lowered."
    ),
    SeriesSpec(
        "grad_norm",
        "Norm over all gradients, before clipping; NaN if one is not finite.",
        role=Role.GRADIENT_NORM,
        source=Source.GRADIENT,
        noun="gradient norm",
        is_guarded=True,
        join=Join.NORM,
        follows_objective=True,
        aliases=_GRADIENT_NORMS,
    ),
    SeriesSpec(
        "clip_coef", "Factor by which clipping by the norm scaled the gradients; 1 if it did not."
    ),
    SeriesSpec("clipped", "1 if `clip_coef` is below 1."),
    SeriesSpec(
        "loss_scale",
        "Scale of AMP's gradient scaler.",
        role=Role.LOSS_SCALE,
        aliases=(
            "train/loss_scale",
            "grad_scale",
            "amp_scale",
        ),
    ),
    SeriesSpec(
        "layers_with_grad", "How many layers had a gradient.", source=Source.GRADIENT, join=Join.SUM
    ),
    SeriesSpec(
        "frozen_layers", "How many layers were trained before and do not require a gradient now."
    ),
    SeriesSpec("optimizer_steps", "How many optimizer steps the row contains."),
    SeriesSpec(
        "untrained_layers", "How many layers should be trained and never are; see LayersNotTrained."
    ),
    SeriesSpec(
        "unreached_layers", "How many layers of an optimizer never had a gradient in 500 steps."
    ),
    SeriesSpec("eval_mode", "1 if these steps were in evaluation mode, and earlier ones were not."),
    SeriesSpec(
        "kept_gradients", "1 if an optimizer stepped with gradients that contain its last step's."
    ),
    SeriesSpec(
        "fresh_optimizers", "How many optimizers of a resumed attempt had no state at its start."
    ),
    SeriesSpec("fresh_schedulers", "How many schedulers of a resumed attempt started anew."),
    SeriesSpec("unrestored_layers", "How many layers differ from the checkpoint that was resumed."),
    SeriesSpec("scaled_clip", "Threshold of a clip of gradients that were not unscaled yet."),
    SeriesSpec(
        "objective", "What is trained now, as a number that the program logs; see docs/rules.md."
    ),
    SeriesSpec("alternating", "1 if optimizers take turns, as in a GAN, or there are rewards."),
    SeriesSpec("guarded_steps", "Optimizer steps that the guard stopped from changing anything."),
    SeriesSpec(
        "guarded_outliers",
        "Of these, steps with finite gradients that were far outside their past.",
    ),
    SeriesSpec("guard_relearned", "How often the guard accepted a ninth outlier as a new level."),
    SeriesSpec("skipped", "1 if the gradient scaler skipped the step."),
    SeriesSpec(
        "step_time",
        "Seconds from step to step, without phases.",
        unit="seconds",
        aliases=(
            "iter_time",
            "iteration_time",
            "step_time_s",
            "time_per_step",
        ),
    ),
    SeriesSpec(
        "sampling_interval", "Steps from one reading of gradients to the next, with `max_overhead`."
    ),
    SeriesSpec(
        "hook_share", "Share of a step's time that watching takes, 0 to 1, with `max_overhead`."
    ),
    SeriesSpec(
        "tokens_per_s",
        "Tokens per second, if `watch.step` gets their number.",
        unit="tokens per second",
        aliases=_SPEEDS,
    ),
    SeriesSpec(
        "param_norm",
        "Norm over all parameters.",
        source=Source.PARAMETER,
        noun="parameter norm",
        is_guarded=True,
        join=Join.NORM,
    ),
    SeriesSpec(
        "nonfinite",
        "How many elements of all gradients are NaN or infinite.",
        source=Source.GRADIENT,
        noun="gradient",
        is_count=True,
        is_guarded=True,
        join=Join.SUM,
    ),
    # Of the rank's process and its machine, once a second.
    SeriesSpec("host_mem", "Resident bytes of the training process.", unit="bytes"),
    SeriesSpec(
        "host_mem_share", "Share in use of the machine's memory, or of a limit on the job, 0 to 1."
    ),
    # Of a rank's first device, every few seconds, with `runwatch[nvml]`; `gpu_mem_1` of the second.
    SeriesSpec(
        "gpu_mem",
        "Bytes of the device's memory in use, by any process; or as a program logs it.",
        unit="bytes",
    ),
    SeriesSpec(
        "gpu_temp",
        "Temperature of the device, degrees Celsius; or as a program logs it.",
        unit="degrees Celsius",
    ),
    SeriesSpec("gpu_util", "Share of the last second in which the device ran a kernel, 0 to 1."),
    SeriesSpec("gpu_throttled", "1 if heat or a power fault slows the device's clocks."),
    SeriesSpec(
        "gpu_ecc_errors", "Uncorrected errors in the device's memory since its driver was loaded."
    ),
    # What is before the attempt: see `background`.
    SeriesSpec("lr_before", "Median of the last 8 learning rates of the attempt before."),
    SeriesSpec("loss_before", "Median of the last 8 losses of the attempt before."),
    SeriesSpec("step_before", "Last step of the attempt before."),
    SeriesSpec("loss_mad_before", "Median absolute deviation of its last 32 losses."),
    SeriesSpec(
        "loss_of_chance", "Logarithm of the number of classes, by the configuration or the head."
    ),
    # Events, counted in the row of their step.
    SeriesSpec("unwatched", "How often a part of the training became invisible to the hook."),
    SeriesSpec("unheeded", "Commands (a stop, a rollback) that the training loop did not follow."),
    SeriesSpec("hook_faults", "Faults of the hook itself, which do not affect the training."),
    SeriesSpec(
        "rows_lost",
        "How often rows, or layers' numbers in them, were lost on the way to the service.",
    ),
    SeriesSpec("clock_off", "How often the rank's clock was found 5 s or more off the service's."),
    # Of each rank beside rank 0.
    SeriesSpec("local_grad_norm", "Norm over the gradients on this rank."),
    SeriesSpec(
        "local_nonfinite", "How many elements of this rank's gradients are NaN or infinite."
    ),
    SeriesSpec("replica_drift", "1 if fingerprints of the replicas' parameters differ."),
    # Of each rank, where there are several.
    SeriesSpec(
        "own_time",
        "Seconds that the rank worked before its backward pass, where all wait.",
        unit="seconds",
    ),
    SeriesSpec(
        "rank_lag",
        "Seconds that the rank works longer than the others, median of 32 steps.",
        unit="seconds",
    ),
    SeriesSpec(
        "loss_gap", "How far the rank's loss is above the others', as a share; median of 32 steps."
    ),
)
"""Of the run."""


STATS: Final = frozenset(STAT_SPECS)
METRICS: Final = frozenset(METRIC_SPECS)

GRADIENT_STATS: Final = tuple(
    name for name, spec in STAT_SPECS.items() if spec.source is Source.GRADIENT
)
PARAMETER_STATS: Final = tuple(
    name for name, spec in STAT_SPECS.items() if spec.source is Source.PARAMETER
)
ACTIVATION_STATS: Final = tuple(
    name for name, spec in STAT_SPECS.items() if spec.source is Source.ACTIVATION
)
SUMMED_METRICS: Final = tuple(name for name, spec in METRIC_SPECS.items() if spec.join is not None)
"""Computed from the stats of all layers."""
NORM_METRICS: Final = tuple(name for name in SUMMED_METRICS if METRIC_SPECS[name].join is Join.NORM)
FOLLOWING_OBJECTIVES: Final = frozenset(
    spec.name for spec in (*METRIC_SPECS.values(), *STAT_SPECS.values()) if spec.follows_objective
)


def _guarded(specs: Mapping[str, SeriesSpec]) -> Mapping[str, SeriesSpec]:
    found = [spec for spec in specs.values() if spec.is_guarded]
    return _by_name(*sorted(found, key=lambda spec: spec.source is not Source.GRADIENT))


GUARDED_METRICS: Final = _guarded(METRIC_SPECS)
GUARDED_STATS: Final = _guarded(STAT_SPECS)
"""Judged by NonFinite, those of the gradient first: a loss scaler skips the step of these."""
