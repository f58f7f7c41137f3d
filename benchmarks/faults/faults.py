"""The faults themselves, each as it happens in real programs."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from benchmarks.faults.loop import Batch, Fault, Kept, Program
from torch import Tensor, nn


@dataclass(slots=True)
class Scratch(Fault):
    """Spoils the gradients of some layers at some steps."""

    spoil: Callable[[Tensor], object]
    layer: str = ""
    steps: int = 1

    def gradients(self, program: Program, step: int) -> None:
        if step >= self.steps:
            return
        for parameter in program.parameters(self.layer):
            if parameter.grad is not None:
                self.spoil(parameter.grad)


def set_first(value: float) -> Callable[[Tensor], object]:
    """Spoils one number of a tensor."""
    return lambda tensor: tensor.view(-1)[:1].fill_(value)


def flip_exponent(tensor: Tensor) -> None:
    """The highest bit of the exponent, of the largest number: from about 1 to about 1e38."""
    flat = tensor.view(-1)
    place = flat.abs().argmax()
    flat[place] = (flat[place].view(torch.int32) ^ (1 << 30)).view(torch.float32)


def scale(factor: float) -> Callable[[Tensor], object]:
    return lambda tensor: tensor.mul_(factor)


@dataclass(slots=True)
class Damage(Fault):
    """Spoils the parameters of some layers, once, or at each of some steps."""

    spoil: Callable[[Tensor], object]
    layer: str = ""
    steps: int = 1

    def before(self, program: Program, step: int) -> None:
        if step < self.steps:
            with torch.no_grad():
                for parameter in program.parameters(self.layer):
                    self.spoil(parameter)


@dataclass(slots=True)
class Reinitialise(Fault):
    """Modules that a resume did not find in the checkpoint, and made anew."""

    layers: Sequence[str]

    def before(self, program: Program, step: int) -> None:
        if step == 0:
            for name, module in program.model.named_children():
                _begin_anew(module, name, tuple(self.layers))


def _begin_anew(module: nn.Module, name: str, layers: tuple[str, ...]) -> None:
    for child_name, child in module.named_children():
        _begin_anew(child, f"{name}.{child_name}", layers)
    if name.startswith(layers) and isinstance(module, nn.Linear | nn.LayerNorm):
        module.reset_parameters()


@dataclass(slots=True)
class BadBatch(Fault):
    """Spoils what the loader gives, at some steps or from then on."""

    spoil: Callable[[Batch, int], Batch]
    steps: int = 10**9

    def batch(self, batch: Batch, step: int) -> Batch:
        return self.spoil(batch, step) if step < self.steps else batch


@dataclass(slots=True)
class BadLoss(Fault):
    """Spoils the loss, at some steps or from then on."""

    spoil: Callable[[Tensor], Tensor]
    steps: int = 10**9

    def loss(self, loss: Tensor, step: int) -> Tensor:
        return self.spoil(loss) if step < self.steps else loss


@dataclass(slots=True)
class Rate(Fault):
    """A learning rate multiplied, from then on or from the start; schedulers build on it."""

    factor: float
    is_from_start: bool = False

    def begin(self, program: Program) -> None:
        if self.is_from_start:
            self._multiply(program)

    def before(self, program: Program, step: int) -> None:
        if step == 0 and not self.is_from_start:
            self._multiply(program)

    def _multiply(self, program: Program) -> None:
        for group in program.optimizer.param_groups:
            group["lr"] *= self.factor
        if program.scheduler is not None:
            program.scheduler.base_lrs = [lr * self.factor for lr in program.scheduler.base_lrs]


@dataclass(slots=True)
class Beginning(Fault):
    """Something that is wrong before the first step."""

    spoil: Callable[[Program], object]

    def begin(self, program: Program) -> None:
        self.spoil(program)


@dataclass(slots=True)
class Change(Fault):
    """Something that somebody changes in the middle."""

    spoil: Callable[[Program], object]

    def before(self, program: Program, step: int) -> None:
        if step == 0:
            self.spoil(program)


@dataclass(slots=True)
class Resumption(Fault):
    """A second process that finds less in its checkpoint than the first has put there."""

    spoil: Callable[[Kept], object]

    def resume(self, kept: Kept) -> None:
        self.spoil(kept)


@dataclass(slots=True)
class Cut(Fault):
    """A module whose output is detached, or spoiled, from then on."""

    module: str
    spoil: Callable[[Tensor], Tensor]
    steps: int = 10**9
    _step: int = -1

    def before(self, program: Program, step: int) -> None:
        self._step = step
        if step == 0:
            program.model.get_submodule(self.module).register_forward_hook(self._hook)

    def _hook(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return self.spoil(output) if self._step < self.steps else output


@dataclass(slots=True)
class SlowLoader(Fault):
    """A loader that takes its time."""

    seconds: float

    def batch(self, batch: Batch, step: int) -> Batch:
        time.sleep(self.seconds)
        return batch


class Sharpening(torch.autograd.Function):
    """An operation of one's own whose backward is wrong by a factor."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        return gradients[0] * 1e3


def sharpen(x: Tensor) -> Tensor:
    return cast(Tensor, Sharpening.apply(x))  # type: ignore[no-untyped-call]


def poison(value: float) -> Callable[[Batch, int], Batch]:
    """One number of the batch becomes another."""

    def spoil(batch: Batch, step: int) -> Batch:
        inputs = batch[0].clone()
        inputs.view(-1)[0] = value
        return inputs, *batch[1:]

    return spoil


def stretch(factor: float) -> Callable[[Batch, int], Batch]:
    """Inputs that nobody normalised."""
    return lambda batch, step: (batch[0] * factor, *batch[1:])


def shuffle_labels(batch: Batch, step: int) -> Batch:
    """Labels that belong to other inputs."""
    order = torch.randperm(len(batch[-1]), generator=torch.Generator().manual_seed(step))
    return *batch[:-1], batch[-1][order]


def scramble(batch: Batch, step: int) -> Batch:
    """Text whose letters were drawn at random: a broken shard, a wrong tokenizer."""
    generator = torch.Generator().manual_seed(step)
    return (torch.randint(96, batch[0].shape, generator=generator),)


def empty(batch: Batch, step: int) -> Batch:
    """A batch from which a filter took everything: its mean loss is 0 / 0."""
    return tuple(part[:0] for part in batch)


def forget_second_moment(program: Program) -> None:
    """A resume that lost Adam's second moments, but not its step count: updates without measure."""
    for state in program.optimizer.state.values():
        state["exp_avg_sq"].zero_()


def keep_gradients(program: Program) -> None:
    """`zero_grad` is no longer called: each step uses the sum of all gradients before."""
    program.zeroes_gradients = False


def sum_micro_batches(program: Program) -> None:
    """The loss is no longer divided by the number of micro-batches."""
    program.divide_by_micro_batches = False


def skip_optimizer(program: Program) -> None:
    """The optimizer's step is no longer reached: a condition that never holds."""
    program.steps_optimizer = False


def freeze(program: Program) -> None:
    for parameter in program.model.parameters():
        parameter.requires_grad_(False)


def repeat_log(program: Program) -> None:
    """A logger that repeats the last value that it heard."""
    heard: list[Tensor] = []

    def logged(loss: Tensor) -> Tensor:
        heard.append(loss)
        return heard[0]

    program.logged_loss = logged


def train_copy(program: Program) -> None:
    """The optimizer was given the parameters of another copy of the model."""
    strangers = [nn.Parameter(p.detach().clone()) for p in program.model.parameters()]
    program.optimizer = torch.optim.SGD(strangers, lr=0.1)
    program.scheduler = None


def shrink_all(factor: float) -> Callable[[Program], None]:
    """Initial weights that are too large, or far too small."""

    def spoil(program: Program) -> None:
        with torch.no_grad():
            for parameter in program.model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(factor)

    return spoil


def drop_clipping(factor: float) -> Callable[[Program], None]:
    """Clipping is taken out, and the rate raised with it."""

    def spoil(program: Program) -> None:
        program.clip = None
        Rate(factor).before(program, 0)

    return spoil


def leave_out(module: str) -> Callable[[Program], None]:
    """The optimizer is not given a module's parameters: it was replaced after the optimizer was
    made."""

    def spoil(program: Program) -> None:
        of_module = {id(parameter) for parameter in program.parameters(module)}
        for group in program.optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in of_module]

    return spoil


def stay_in_evaluation(program: Program) -> None:
    """An evaluation after which nobody says `train()`."""
    program.model.eval()


def clip_scaled(program: Program) -> None:
    """`unscale_` is left out, so that a clip sees the gradients times the loss scale."""
    program.unscales_gradients = False


def round_everything(program: Program) -> None:
    """Weights in bfloat16 and a low rate: most updates are rounded away."""
    program.model.bfloat16()
    Rate(0.03, is_from_start=True).begin(program)


def decay_weights(program: Program) -> None:
    """A weight decay of a hundred times what was meant."""
    for group in program.optimizer.param_groups:
        group["weight_decay"] *= 100


def enlarge_epsilon(program: Program) -> None:
    """Adam's epsilon, far above the gradients."""
    for group in program.optimizer.param_groups:
        group["eps"] = 10.0


def evaluate_nothing(program: Program) -> None:
    """Evaluations over no batch at all: 0 / 0."""
    program.evaluate = lambda model: math.nan


def clip_to_nothing(program: Program) -> None:
    """A clip whose threshold is a thousandth of a usual norm."""
    program.clip = 1e-3


class SameBatch(Fault):
    """A loader that gives one batch again and again."""

    def __init__(self) -> None:
        self._first: Batch | None = None

    def batch(self, batch: Batch, step: int) -> Batch:
        self._first = self._first or batch
        return self._first


def lose(part: str) -> Callable[[Kept], object]:
    """A checkpoint without one part of the program."""
    return lambda kept: kept.pop(part)


def lose_layers(prefixes: tuple[str, ...]) -> Callable[[Kept], object]:
    """A checkpoint whose names for some layers are not the model's, loaded without `strict`."""

    def spoil(kept: Kept) -> None:
        kept["model"] = {n: t for n, t in kept["model"].items() if not n.startswith(prefixes)}

    return spoil
