"""Layers that are to be trained and are not: no gradient reaches them, or no optimizer holds them.

Neither shows in a number: a layer that never had a gradient has no norm that could fall, and what
no optimizer steps has no update that could be too small. The loss falls by what the others learn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.measuring.layer_names import NamedTensor, some_of
from runwatch_hooks.measuring.sampled_updates import sample
from runwatch_hooks.seeing.known_optimizers import KnownOptimizer, parameters_of
from runwatch_hooks.seeing.left_gradients import Left

IN_VAIN_AFTER: Final = 100
"""Steps of an optimizer none of whose parameters ever had a gradient."""
UNREACHED_AFTER: Final = 500
"""Steps of an optimizer after which a layer without a gradient is told: an expert, or the head of
a rare task, may have to wait for its first."""
LOOKED_EVERY: Final = 64
"""Rows between two looks at the layers that no optimizer holds."""
_LOOKS: Final = 4
"""At which a layer has had a gradient and stood still before it is told: an optimizer that attach
was not given is known once it steps."""


@dataclass(slots=True)
class _Course:
    """One optimizer's parameters, as its steps found them."""

    silent: list[Tensor]
    """Those that never had a gradient."""
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
    """A layer that has a gradient and is in no optimizer."""

    address: int
    version: int
    sample: Tensor
    gradient: Left
    """At the last look."""
    num_looks: int = 1

    def stands_still(self, tensor: Tensor) -> bool:
        """Whether nobody moves it by hand. Of memory that is not the host's, only what torch
        counts: to compare numbers would be a wait."""
        if _address_of(tensor) != self.address or tensor._version != self.version:
            return False
        return tensor.device.type != "cpu" or torch.equal(sample(tensor), self.sample)

    def look(self, grad: Tensor) -> None:
        """Counts where a backward pass has been here since: a gradient that an earlier training
        left, as of a teacher, comes no more."""
        if not self.gradient.is_as_left(grad):
            self.gradient = Left(grad, num_writes=0)
            self.num_looks += 1


class Untrained:
    """What the optimizers' steps leave out. For one rank that holds whole layers."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._courses: WeakKeyDictionary[Optimizer, _Course] = WeakKeyDictionary()
        self._unheld: dict[int, _Unheld] = {}
        self._told: dict[str, int] = {}
        """Numbers of layers that were told, by why they are not trained."""
        self._num_rows = 0
        self._is_due = False

    def note_step(self, optimizer: Optimizer) -> None:
        """An optimizer steps; the gradients that it steps by are there. Costs what a look-up does,
        once all of its parameters have had one."""
        course = self._courses.get(optimizer)
        if course is None:
            course = self._courses[optimizer] = _Course(parameters_of(optimizer))
        course.num_steps += 1
        if course.silent:
            silent = [tensor for tensor in course.silent if tensor.grad is None]
            course.has_gradients = course.has_gradients or len(silent) < len(course.silent)
            course.silent = silent
            self._is_due = self._is_due or course.num_steps in (IN_VAIN_AFTER, UNREACHED_AFTER)

    def end_row(
        self, named: Sequence[NamedTensor], optimizers: Iterable[KnownOptimizer]
    ) -> tuple[dict[str, float], list[str]]:
        """Numbers of layers, once there were any; and what is news of them, in words."""
        self._num_rows += 1
        looks = self._num_rows % LOOKED_EVERY == 0
        if looks:
            self._look(named, optimizers)
        if not (looks or self._is_due or self._told):
            return {}, []
        self._is_due = False
        names = {id(one.tensor): one.name for one in named}
        courses = list(self._courses.values())
        in_vain = _silent(names, (one for one in courses if one.steps_in_vain))
        unreached = _silent(names, (one for one in courses if one.leaves_out))
        if not any(one.has_gradients for one in courses):
            in_vain = []  # none at all: that the watch is blind is told already
        lasting = (key for key, one in self._unheld.items() if one.num_looks >= _LOOKS)
        unheld = [names[key] for key in lasting if key in names]
        news = [
            *self._news("in vain", in_vain, "no gradient has reached any layer of an optimizer"),
            *self._news("unheld", unheld, "these layers have gradients, and no optimizer has them"),
            *self._news("unreached", unreached, "no gradient has ever reached these layers"),
        ]
        numbers: dict[str, float] = {}
        if {"in vain", "unheld"} & self._told.keys():
            numbers["untrained_layers"] = float(len(in_vain) + len(unheld))
        if "unreached" in self._told:
            numbers["unreached_layers"] = float(len(unreached))
        return numbers, news

    def _news(self, kind: str, names: Sequence[str], words: str) -> list[str]:
        if len(names) <= self._told.get(kind, 0):
            return []
        self._told[kind] = len(names)
        return [f"{words}, though they are to be trained: {some_of(names)}"]

    def _look(self, named: Sequence[NamedTensor], optimizers: Iterable[KnownOptimizer]) -> None:
        """Compare the layers that are in no optimizer with how they were at the last look. What has
        left the models, as a replaced parameter does, has its last gradient and learns no more."""
        groups = [group for one in optimizers for group in one.param_groups]
        held = {id(tensor) for group in groups for tensor in group["params"]}
        own = {id(one) for module in self._modules.values() for one in module.parameters()}
        unheld = own - held
        found = [
            (one.tensor, one.tensor.grad)
            for one in named
            if id(one.tensor) in unheld and one.tensor.requires_grad
            and one.tensor.grad is not None
        ]  # fmt: skip
        # Optimizers that hold tensors which are none of the models', such as copies in float32.
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
                    _address_of(tensor), tensor._version, kept, Left(grad, num_writes=0)
                )


def _address_of(tensor: Tensor) -> int:
    """0 of a sparse one, which does not lie in one piece."""
    return tensor.data_ptr() if tensor.layout is torch.strided else 0


def _silent(names: Mapping[int, str], courses: Iterable[_Course]) -> list[str]:
    """The names of the layers that never had a gradient, and require one."""
    silent = {
        id(tensor): None for course in courses for tensor in course.silent if tensor.requires_grad
    }
    return [names[key] for key in silent if key in names]
