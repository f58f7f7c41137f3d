"""Detects layers that should be trained and are not: without a gradient, or in no optimizer.

No metric shows either: a layer that never had a gradient has no norm that could fall, and a layer
in no optimizer has no update that could be too small. The loss falls, as the others learn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.omissions import Omission, Why
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.statistics.samples import sample
from runwatch_hooks.step.gradient_marks import GradientVersion
from runwatch_hooks.step.layers import KnownOptimizer, optimizer_parameters
from runwatch_hooks.step.observer import (
    OptimizerStep,
    RunContext,
    StepEnd,
    StepNotes,
    StepObserver,
)

IN_VAIN_AFTER: Final = 100
"""Steps of an optimizer without any gradient, after which it is reported."""
UNREACHED_AFTER: Final = 500
"""Steps of an optimizer after which a layer that never had a gradient is reported. An expert of a
mixture, or the head of a rare task, may have to wait for its first."""
IDLE_AFTER: Final = 256
"""Steps of another optimizer after which one that has not stepped yet holds no layers. Its turn may
come later: a critic is often trained alone for some hundred steps."""
LOOKED_EVERY: Final = 64
"""Rows between two checks of the layers that no optimizer steps."""
_EARLY_LOOKS: Final = frozenset((8, 16, 32))
"""Rows with a check besides: most such layers are left out from the start, and the fewer steps have
gone by, the less training is lost."""
_LOOKS: Final = 4
"""Checks in which such a layer had a gradient and did not change before it is reported: an
optimizer not given to `attach` is known only once it steps."""
_KINDS: Final = {
    "in vain": (
        "no gradient has reached any layer of an optimizer",
        "untrained_layers",
        Why.NO_GRADIENT,
    ),
    "unheld": (
        "these layers have gradients, and no optimizer steps them",
        "untrained_layers",
        Why.NO_OPTIMIZER,
    ),
    "unreached": ("no gradient has ever reached these layers", "unreached_layers", Why.UNKNOWN),
}
"""Kind of omission -> its words, the metric that counts its layers, and what is known of why."""


@dataclass(slots=True)
class _GradientHistory:
    """What is known about one optimizer's parameters."""

    silent: list[Tensor]
    """Parameters that never had a gradient."""
    has_gradients: bool = False
    num_steps: int = 0

    @property
    def steps_in_vain(self) -> bool:
        return self.num_steps >= IN_VAIN_AFTER and not self.has_gradients

    @property
    def leaves_out(self) -> bool:
        return self.num_steps >= UNREACHED_AFTER and self.has_gradients


@dataclass(slots=True)
class _Unheld:
    """A layer that has a gradient and that no optimizer steps: its state at the last check."""

    address: int
    version: int
    sample: Tensor
    gradient: GradientVersion
    num_looks: int = 1

    def stands_still(self, tensor: Tensor) -> bool:
        """Whether the program did not change it by hand. On an accelerator, only by torch's count
        of writes: comparing values would be a sync."""
        if _address_of(tensor) != self.address or tensor._version != self.version:
            return False
        return tensor.device.type != "cpu" or torch.equal(sample(tensor), self.sample)

    def look(self, grad: Tensor) -> None:
        """Count this check if a backward pass has written the gradient since the last one. Stale
        gradients of an earlier training, such as a frozen teacher's, do not change."""
        if not self.gradient.is_unchanged(grad):
            self.gradient = GradientVersion(grad, num_writes=0)
            self.num_looks += 1


class Untrained(StepObserver):
    """The layers that optimizer steps leave out, of those that no rank shares with others."""

    name = "untrained layers"

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._histories: WeakKeyDictionary[Optimizer, _GradientHistory] = WeakKeyDictionary()
        self._unheld: dict[int, _Unheld] = {}
        self._told: dict[str, int] = {}
        """Kind of omission -> the number of layers last reported."""
        self._num_rows = 0
        self._is_due = False

    @classmethod
    def make(cls, run: RunContext) -> StepObserver | None:
        return cls(run.modules) if run.world.is_leader else None

    def on_gradients(self, step: OptimizerStep) -> None:
        """Once all parameters of the optimizer have had a gradient, this costs one dictionary
        look-up."""
        optimizer = step.optimizer
        history = self._histories.get(optimizer)
        if history is None:
            history = self._histories[optimizer] = _GradientHistory(optimizer_parameters(optimizer))
        history.num_steps += 1
        if history.silent:
            silent = [tensor for tensor in history.silent if tensor.grad is None]
            history.has_gradients = history.has_gradients or len(silent) < len(history.silent)
            history.silent = silent
            self._is_due = self._is_due or history.num_steps in (IN_VAIN_AFTER, UNREACHED_AFTER)

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """The numbers of such layers, once there were any, and what is new."""
        named = () if end.is_sharded else end.named
        self._num_rows += 1
        looks = self._num_rows % LOOKED_EVERY == 0 or self._num_rows in _EARLY_LOOKS
        if looks:
            self._look(named, end.optimizers)
        if not (looks or self._is_due or self._told):
            return None
        self._is_due = False
        names = {id(one.tensor): one.name for one in named}
        histories = list(self._histories.values())
        in_vain = _silent(names, (one for one in histories if one.steps_in_vain))
        unreached = _silent(names, (one for one in histories if one.leaves_out))
        if not any(one.has_gradients for one in histories):
            in_vain = []  # no gradients at all: `NoGradients` reports that
        lasting = (key for key, one in self._unheld.items() if one.num_looks >= _LOOKS)
        unheld = [names[key] for key in lasting if key in names]
        news = (
            *self._news("in vain", in_vain),
            *self._news("unheld", unheld),
            *self._news("unreached", unreached),
        )
        numbers: dict[str, float] = {}
        if {"in vain", "unheld"} & self._told.keys():
            numbers["untrained_layers"] = float(len(in_vain) + len(unheld))
        if "unreached" in self._told:
            numbers["unreached_layers"] = float(len(unreached))
        return StepNotes(numbers, omissions=news)

    def _news(self, kind: str, names: Sequence[str]) -> list[Omission]:
        if len(names) <= self._told.get(kind, 0):
            return []
        self._told[kind] = len(names)
        words, metric, why = _KINDS[kind]
        words = f"{words}, although they should be trained"
        return [Omission.of(words, names, metric=metric, why=why)]

    def _look(self, named: Sequence[NamedTensor], optimizers: Iterable[KnownOptimizer]) -> None:
        """Compare the layers that no optimizer steps with their state at the last check. Tensors
        no longer in the models, such as replaced parameters, are left out."""
        groups = [group for one in self._holding(optimizers) for group in one.param_groups]
        held = {id(tensor) for group in groups for tensor in group["params"]}
        own = {id(one) for module in self._modules.values() for one in module.parameters()}
        unheld = own - held
        found = [
            (one.tensor, one.tensor.grad)
            for one in named
            if id(one.tensor) in unheld and one.tensor.requires_grad
            and one.tensor.grad is not None
        ]  # fmt: skip
        # The optimizers hold tensors that are not the models', such as float32 master copies: then
        # a parameter of lower precision is trained through its copy.
        if found and not own.issuperset(held):
            found = [one for one in found if one[0].dtype == torch.float32]
        before, self._unheld = self._unheld, {}
        for tensor, grad in found:
            known = before.get(id(tensor))
            if known is not None and known.stands_still(tensor):
                known.look(grad)
                self._unheld[id(tensor)] = known
            else:
                kept = sample(tensor).clone()
                self._unheld[id(tensor)] = _Unheld(
                    _address_of(tensor), tensor._version, kept, GradientVersion(grad, num_writes=0)
                )

    def _holding(self, optimizers: Iterable[KnownOptimizer]) -> list[KnownOptimizer]:
        """The optimizers that train their layers. One that the program has dropped, though its
        groups stay known, will never step again; one that was given may never have stepped."""
        living = [one for one in optimizers if one.optimizer is not None]
        if max((one.num_steps for one in self._histories.values()), default=0) < IDLE_AFTER:
            return living
        return [one for one in living if one.optimizer in self._histories]


def _address_of(tensor: Tensor) -> int:
    """The tensor's address; 0 for a sparse one, which has several."""
    return tensor.data_ptr() if tensor.layout is torch.strided else 0


def _silent(names: Mapping[int, str], histories: Iterable[_GradientHistory]) -> list[str]:
    """Names of the layers that require a gradient and never had one."""
    silent = {
        id(tensor): None
        for history in histories
        for tensor in history.silent
        if tensor.requires_grad
    }
    return [names[key] for key in silent if key in names]
