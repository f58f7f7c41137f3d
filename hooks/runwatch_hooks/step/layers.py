"""The tensors of a run that are measured, each with its index in the layout, and its optimizers."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.layouts import MAX_LAYERS, Layer, Layout
from runwatch_hooks.ranks.shards import (
    is_hollow,
    is_partitioned,
    is_shared,
    mark_of,
    owners_of,
    portion_of,
    shape_of,
)
from runwatch_hooks.statistics.cpu import deal
from runwatch_hooks.statistics.layer_names import (
    NamedTensor,
    clean_name,
    name_tensors,
    parameters_of,
)
from runwatch_hooks.step.row import Sharing

Groups = list[dict[str, Any]]


class KnownOptimizer:
    """An optimizer whose parameter groups stay known after it is gone: they belong to the model.

    Weak references to a run's optimizers, so that dropped ones release their state. A loop may
    create a new optimizer for each epoch. The moments of Adam are twice the size of the model, and
    no accelerator has room for those of every epoch.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = ref(optimizer)
        self._groups = optimizer.param_groups

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None once the program has dropped it."""
        return self._optimizer()

    @property
    def param_groups(self) -> Groups:
        """Its current groups, or the last known. They are read anew each time, since
        `load_state_dict` replaces them."""
        optimizer = self._optimizer()
        if optimizer is not None:
            self._groups = optimizer.param_groups
        return self._groups

    def forget(self, tensors: Collection[int]) -> None:
        """Drop the tensors with these ids from the groups, if the optimizer is gone: then only
        these groups keep them alive."""
        if self._optimizer() is None:
            self._groups = [
                group | {"params": [one for one in group["params"] if id(one) not in tensors]}
                for group in self._groups
            ]


def optimizer_parameters(optimizer: Optimizer) -> list[Tensor]:
    """The tensors it steps, in the order of its groups. Saved states identify them by this
    order."""
    groups = cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]


def at_rest(optimizer: Optimizer) -> list[Tensor]:
    """Tensors with a learning rate of 0. Rates that are tensors are not read: on an accelerator
    that would be a sync."""
    groups: Groups = optimizer.param_groups
    resting = [one for one in groups if isinstance(one.get("lr"), (int, float)) and not one["lr"]]
    return [parameter for group in resting for parameter in group["params"]]


def steps_as_torchs_own(optimizer: Optimizer) -> bool:
    """Whether its `step` is defined in torch, so that its behaviour is known."""
    return type(optimizer).step.__module__.startswith("torch.optim.")


class Roster:
    """The optimizers still alive, numbered in the order in which they were added. No number is used
    twice."""

    def __init__(self, optimizers: Iterable[Optimizer] = ()) -> None:
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._num_ever = 0
        for optimizer in optimizers:
            self.add(optimizer)

    def add(self, optimizer: Optimizer) -> None:
        self._numbers[optimizer] = self._num_ever
        self._num_ever += 1

    def living(self) -> dict[int, Optimizer]:
        """Number -> optimizer, in order. The caller holds them; do not store the result."""
        return {number: optimizer for optimizer, number in self._numbers.items()}

    def has_given(self, number: int) -> bool:
        """Whether an optimizer, alive or gone, has this number."""
        return number < self._num_ever


_Signature = tuple[object, ...]


class LayerTable:
    """The layers of modules and optimizers at one moment. A new table is built when they change."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[KnownOptimizer],
        stats: tuple[str, ...],
        rank: int = 0,
        kept: Collection[int] = frozenset(),
        former: frozenset[int] = frozenset(),
    ) -> None:
        """Rank 0 measures everything that it holds a part of, other ranks only the rest.

        `kept` are the ids of tensors that were trained before. They stay layers while they are
        frozen: a loop that freezes and unfreezes parameters (a critic while the generator trains,
        the heads of other tasks) keeps one layout, and a layer that loses its gradient stays
        visible. `former` are the ids of all parameters that the modules have had: one that has been
        replaced stays a layer while an optimizer that steps it exists.
        """
        self._modules = modules
        self._optimizers = optimizers
        self._rank = rank
        trained = name_tensors(modules, () if _are_in_pieces(modules) else optimizers, kept)
        self.hollow = tuple(one.name for one in trained if is_hollow(one.tensor))
        """Names of trained tensors that cannot be read."""
        if self.hollow:
            trained = tuple(one for one in trained if not is_hollow(one.tensor))
        self.named = trained[:MAX_LAYERS]
        """All trained tensors, whichever rank measures them: the same on every rank."""
        self.num_left_out = len(trained) - len(self.named)
        """The number of layers above a layout's limit."""
        all_turns = deal([math.prod(shape_of(one.tensor)) for one in self.named])
        turns = {id(one.tensor): turn for one, turn in zip(self.named, all_turns, strict=True)}
        named = [one for one in self.named if rank in owners_of(one.tensor) or not rank]
        self.tensors: tuple[Tensor, ...] = tuple(one.tensor for one in named)
        self.turns = [turns[id(one)] for one in self.tensors]
        self.locals = [portion_of(one) for one in self.tensors]
        """This rank's part of each tensor."""
        self.sharing = _sharing(self.tensors, self.locals)
        self.layout = Layout(layers=tuple(_layer(one) for one in named), stats=stats)
        self.slots = {id(tensor): slot for slot, tensor in enumerate(self.tensors)}
        self._kept = frozenset(id(one.tensor) for one in self.named)
        self._of_optimizers: WeakKeyDictionary[Optimizer, tuple[int, ...]] = WeakKeyDictionary()
        for one in optimizers:
            if (optimizer := one.optimizer) is not None:
                self._of_optimizers[optimizer] = self._find_slots(optimizer)
        # Strong references, so that no id can pass to another tensor while the table exists.
        of_modules = _parameters_of(modules)
        self._watched = self._parameters(of_modules)
        self._replaced = former & {id(one) for one in self._watched} - of_modules.keys()
        self._former = self._replaced | of_modules.keys()
        self._frozen = [one for one in self._watched if id(one) not in self._kept]
        """Tensors never trained so far, which would become layers if they are unfrozen."""
        self._signature = self._sign([one.device for one in self._watched])

    def is_current(self) -> bool:
        """Whether the table still describes the modules and optimizers.

        False after a first unfreezing, `add_param_group`, other tensors in an optimizer's groups,
        a change of dtype, device or number of elements, the first forward of a lazy module, or when
        an optimizer that steps replaced parameters is gone.
        Takes about 30 microseconds for 150 tensors, so it is checked at every step.
        """
        if self._signature == self._sign([one.device for one in self._watched]):
            return True
        return self._signature == self._sign([_home_of(one) for one in self._watched])

    def missed(self) -> list[str]:
        """Names of parameters that the modules have now and did not have when this was built."""
        known = {id(tensor) for tensor in self._watched}
        return [
            clean_name(name)
            for prefix, module in self._modules.items()
            for name, tensor in parameters_of(module, prefix)
            if id(tensor) not in known
        ]

    def unheld(self, held: Collection[int]) -> list[str]:
        """Names of parameters that require a gradient and whose ids are not in `held`."""
        return [
            clean_name(name)
            for prefix, module in self._modules.items()
            for name, tensor in parameters_of(module, prefix)
            if tensor.requires_grad and id(tensor) not in held
        ]

    def num_unknown(self, optimizer: Optimizer) -> int:
        """How many tensors of an optimizer are not in the table, if it was not given to
        `attach`."""
        if optimizer in self._of_optimizers:
            return 0
        return sum(
            id(one) not in self.slots for group in optimizer.param_groups for one in group["params"]
        )

    def rebuilt(self, others: Iterable[KnownOptimizer] = ()) -> "LayerTable":
        """A new table of the modules and optimizers as they are now. Parameters that modules have
        replaced are first dropped from optimizers that are gone, of the table and of `others`."""
        replaced = self._former - _parameters_of(self._modules).keys()
        for one in (*self._optimizers, *others):
            one.forget(replaced)
        return LayerTable(
            self._modules,
            self._optimizers,
            self.layout.stats,
            self._rank,
            self._kept,
            self._former,
        )

    def slots_of(self, optimizer: Optimizer) -> tuple[int, ...]:
        """The slots of an optimizer's tensors; empty if none is in the table."""
        known = self._of_optimizers.get(optimizer)
        return self._find_slots(optimizer) if known is None else known

    def _find_slots(self, optimizer: Optimizer) -> tuple[int, ...]:
        tensors = (tensor for group in optimizer.param_groups for tensor in group["params"])
        return tuple(self.slots[id(one)] for one in tensors if id(one) in self.slots)

    def _parameters(self, of_modules: Mapping[int, Tensor]) -> list[Tensor]:
        found = dict(of_modules)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                found |= {id(tensor): tensor for tensor in group["params"]}
        return list(found.values())

    def _sign(self, devices: Sequence[torch.device]) -> _Signature:
        groups = (group for one in self._optimizers for group in one.param_groups)
        stepped = [id(tensor) for group in groups for tensor in group["params"]]
        trained = [one.requires_grad for one in self._frozen]
        watched = self._watched
        dtypes = [one.dtype for one in watched]
        facts = (stepped, trained, dtypes, devices, list(map(type, watched)), self._num_gone())
        if self.sharing is None:
            # Not the shapes, which would take twice as long: they rarely change without `numel`.
            return (*facts, [tensor.numel() for tensor in self.tensors])
        return (*facts, [mark_of(tensor) for tensor in self.tensors])

    def _num_gone(self) -> int:
        """The number of optimizers that are gone; 0 if no module has replaced a parameter."""
        return sum(one.optimizer is None for one in self._optimizers) if self._replaced else 0


def _home_of(tensor: Tensor) -> torch.device:
    """The device of a tensor's gradient, if it has one. A program may keep its weights elsewhere
    until the gradients are clipped; they are back before they are stepped."""
    return tensor.device if tensor.grad is None else tensor.grad.device


def _parameters_of(modules: Mapping[str, nn.Module]) -> dict[int, Tensor]:
    """The modules' parameters by their ids."""
    return {id(one): one for module in modules.values() for one in module.parameters()}


def _are_in_pieces(modules: Mapping[str, nn.Module]) -> bool:
    """Whether the optimizers step pieces of the modules' parameters (ZeRO), which are not layers of
    their own."""
    return any(is_partitioned(one) for module in modules.values() for one in module.parameters())


def _sharing(tensors: Sequence[Tensor], parts: Sequence[Tensor]) -> Sharing | None:
    """How the tensors are split over ranks; None if none is sharded."""
    if not any(is_shared(tensor) for tensor in tensors):
        return None
    return Sharing(
        owners=tuple(owners_of(tensor) for tensor in tensors),
        sizes=tuple(part.numel() for part in parts),
    )


def _layer(named: NamedTensor) -> Layer:
    tensor = named.tensor
    return Layer(
        name=named.name,
        shape=shape_of(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        aliases=named.aliases,
    )
