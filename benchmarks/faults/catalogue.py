"""Which fault strikes which program, where, and what would be a good answer to it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from benchmarks.faults import faults
from benchmarks.faults.faults import (
    BadBatch,
    BadLoss,
    Beginning,
    Change,
    Cut,
    Damage,
    Rate,
    Reinitialise,
    Resumption,
    SameBatch,
    Scratch,
    SlowLoader,
)
from benchmarks.faults.loop import Fault, Program
from benchmarks.faults.models import MLP
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault in a program."""

    name: str
    program: str
    make: Callable[[], Fault]
    layers: tuple[str, ...] = ()
    """Prefixes of the layers at fault; a right answer names one of them first."""
    is_acute: bool = False
    """Seen at once by anyone who looks at that step."""
    is_from_start: bool = False
    is_at_resume: bool = False


def _acute(
    name: str, program: str, make: Callable[[], Fault], layers: tuple[str, ...] = ()
) -> Case:
    return Case(name=name, program=program, make=make, layers=layers, is_acute=True)


def _slow(name: str, program: str, make: Callable[[], Fault], layers: tuple[str, ...] = ()) -> Case:
    return Case(name=name, program=program, make=make, layers=layers)


def _start(name: str, program: str, make: Callable[[], Fault]) -> Case:
    return Case(name=name, program=program, make=make, is_from_start=True)


def _resume(name: str, make: Callable[[], Fault], layers: tuple[str, ...] = ()) -> Case:
    return Case(name=name, program="resumed", make=make, layers=layers, is_at_resume=True)


def _dead_units(parameter: torch.Tensor) -> None:
    if parameter.dim() == 1:
        parameter.fill_(-50.0)


def _sigmoids(program: Program) -> None:
    model = MLP((2, *[32] * 10, 3), nn.Sigmoid)
    program.model = model
    program.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


CASES: Final = (
    # What is not a number.
    _acute("NaN in a batch", "mlp", lambda: BadBatch(faults.poison(math.nan), 1)),
    _acute("infinity in a batch", "convolutions", lambda: BadBatch(faults.poison(math.inf), 1)),
    _acute("an empty batch: 0 / 0", "mlp", lambda: BadBatch(faults.empty, 1)),
    _acute("log(0) in the loss", "autoencoder", lambda: BadLoss(lambda x: (x * 0).log(), 1)),
    _acute(
        "NaN in one layer's gradient",
        "transformer",
        lambda: Scratch(faults.set_first(math.nan), "blocks.1.qkv.weight"),
        ("blocks.1.qkv.weight",),
    ),
    _acute(
        "infinity in one layer's gradient",
        "recurrent",
        lambda: Scratch(faults.set_first(math.inf), "lstm.weight_hh_l0"),
        ("lstm.weight_hh_l0",),
    ),
    _acute(
        "NaN in a parameter",
        "transformer",
        lambda: Damage(faults.set_first(math.nan), "blocks.2.up.weight"),
        # Through the loss it reaches every gradient of the same step.
        ("",),
    ),
    _acute(
        "an operation that overflows, for good",
        "half-precision",
        lambda: Cut("blocks.1.down", lambda x: x + (x * 0 + math.inf) * 0),
    ),
    _acute(
        "one layer overflows float16, for good",
        "half-precision",
        lambda: Scratch(faults.set_first(math.inf), "blocks.0.out.weight", 10**9),
        ("blocks.0.out.weight",),
    ),
    # What is too large.
    _acute("gradients times 10, once", "transformer", lambda: Scratch(faults.scale(10.0))),
    _acute("gradients times 1000, once", "convolutions", lambda: Scratch(faults.scale(1e3))),
    _acute(
        "a bit flips in a gradient",
        "transformer",
        lambda: Scratch(faults.set_first(1e8), "blocks.0.down.weight"),
        ("blocks.0.down.weight",),
    ),
    _acute(
        "a bit flips in a weight",
        "mlp",
        lambda: Damage(faults.flip_exponent, "4.weight"),
        # What it gives on reaches every gradient of the same step.
        ("",),
    ),
    _acute(
        "an operation with a wrong backward",
        "transformer",
        lambda: Cut("blocks.1.down", faults.sharpen),
        ("blocks.1.", "blocks.0.", "embedding", "positions"),
    ),
    _acute("inputs times 30, once", "mlp", lambda: BadBatch(faults.stretch(30.0), 1)),
    _acute("inputs times 255, for good", "epochs", lambda: BadBatch(faults.stretch(255.0))),
    # The learning rate and the optimizer.
    _acute("learning rate times 100", "transformer", lambda: Rate(100.0)),
    _slow("learning rate times 30", "mlp", lambda: Rate(30.0)),
    _slow("learning rate times 1000", "recurrent", lambda: Rate(1000.0)),
    _acute("learning rate of the wrong sign", "mlp", lambda: BadLoss(lambda loss: -loss)),
    _slow(
        "no clipping and a rate times 300", "recurrent", lambda: Change(faults.drop_clipping(300.0))
    ),
    _slow("Adam's second moments lost", "transformer", lambda: Change(faults.forget_second_moment)),
    _slow("zero_grad is missing", "convolutions", lambda: Change(faults.keep_gradients)),
    _slow("micro-batches summed", "accumulation", lambda: Change(faults.sum_micro_batches)),
    _slow("the optimizer is not reached", "transformer", lambda: Change(faults.skip_optimizer)),
    _slow("weight decay times 100", "transformer", lambda: Change(faults.decay_weights)),
    _slow("Adam's epsilon is 10", "recurrent", lambda: Change(faults.enlarge_epsilon)),
    _slow("a clip before unscale_", "half-precision", lambda: Change(faults.clip_scaled)),
    _acute("the loss is a sum, no mean", "autoencoder", lambda: BadLoss(lambda loss: 32 * loss)),
    # Data.
    _acute("sixty batches of noise", "transformer", lambda: BadBatch(faults.scramble, 60)),
    _acute("noise for good", "recurrent", lambda: BadBatch(faults.scramble)),
    _acute("labels shuffled for good", "mlp", lambda: BadBatch(faults.shuffle_labels)),
    _slow("one batch again and again", "mlp", SameBatch),
    _slow("evaluations of no batch", "mlp", lambda: Change(faults.evaluate_nothing)),
    # Weights and graph.
    _acute(
        "a layer begins anew",
        "transformer",
        lambda: Reinitialise(("blocks.1.", "head")),
    ),
    _acute(
        "units die",
        "mlp",
        lambda: Damage(_dead_units, "2."),
        ("0.", "2."),
    ),
    _slow(
        "the graph is cut below a layer",
        "transformer",
        lambda: Cut("blocks.1", lambda x: x.detach()),
        ("embedding", "positions", "blocks.0", "blocks.1"),
    ),
    _slow(
        "attention logits grow",
        "transformer",
        lambda: Damage(faults.scale(1.03), "blocks.1.qkv.weight", 200),
        ("blocks.1.",),
    ),
    _slow(
        "embeddings grow",
        "recurrent",
        lambda: Damage(faults.scale(1.03), "embedding", 200),
        ("embedding",),
    ),
    _acute(
        "a layer is set to zero",
        "transformer",
        lambda: Damage(faults.scale(0.0), "blocks.1.down.weight"),
        ("blocks.1.down.weight",),
    ),
    # The program around it.
    _slow("train() is forgotten", "convolutions", lambda: Change(faults.stay_in_evaluation)),
    _slow("the log repeats itself", "transformer", lambda: Change(faults.repeat_log)),
    _slow("the loader becomes slow", "convolutions", lambda: SlowLoader(0.03)),
    # A second process.
    _resume("a resume without the schedule", lambda: Resumption(faults.lose("scheduler"))),
    _resume("a resume without the optimizer", lambda: Resumption(faults.lose("optimizer"))),
    _resume("a resume without the model", lambda: Resumption(faults.lose("model"))),
    _resume(
        "a resume that misses some layers",
        lambda: Resumption(faults.lose_layers(("blocks.1.", "head"))),
    ),
    # From the first step on.
    _start("a learning rate of 0", "convolutions", lambda: Rate(0.0, is_from_start=True)),
    _start("a learning rate times 3000", "mlp", lambda: Rate(3e3, is_from_start=True)),
    _start("a clip far too low", "convolutions", lambda: Beginning(faults.clip_to_nothing)),
    _start("labels of others", "convolutions", lambda: BadBatch(faults.shuffle_labels)),
    _start("inputs of zeros", "mlp", lambda: BadBatch(faults.stretch(0.0))),
    _start("everything is frozen", "transformer", lambda: Beginning(faults.freeze)),
    _start("the optimizer has a copy", "convolutions", lambda: Beginning(faults.train_copy)),
    _start(
        "a head that no optimizer has", "fine-tuning", lambda: Beginning(faults.leave_out("head"))
    ),
    _start("weights in bfloat16", "fine-tuning", lambda: Beginning(faults.round_everything)),
    _start("weights times 20", "transformer", lambda: Beginning(faults.shrink_all(20.0))),
    _start("weights of almost nothing", "mlp", lambda: Beginning(faults.shrink_all(1e-4))),
    _start("ten sigmoids in a row", "mlp", lambda: Beginning(_sigmoids)),
)

CASE_OF_NAME: Final = {case.name: case for case in CASES}
