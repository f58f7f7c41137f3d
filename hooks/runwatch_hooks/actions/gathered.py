"""This rank's part of a state that another number of ranks saved, joined from the parts of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.actions.checkpoints import Loaded
from runwatch_hooks.actions.errors import StateMismatchError
from runwatch_hooks.actions.scattered import Place, Scattered, place_of
from runwatch_hooks.actions.training_state import TrainingState
from runwatch_hooks.actions.trees import Mapped
from runwatch_hooks.ranks.shards import is_sharded
from runwatch_hooks.seeing.known_optimizers import parameters_of

MODULES: Final = "modules"
OPTIMIZERS: Final = "optimizers"


@dataclass(frozen=True, slots=True)
class Extent:
    """Which elements of a tensor a rank holds, as its checkpoint says."""

    shape: list[int]
    """Of the whole tensor."""
    place: Place | None
    """None: it was written in a layout that is not known."""
    size: list[int]
    """Of the rank's part."""

    @classmethod
    def of(cls, tensor: Tensor) -> "Extent":
        place = place_of(tensor)
        size = [sum(length for _, length in runs) for runs in place or ()]
        return cls(list(tensor.shape), place, size)

    @classmethod
    def from_saved(cls, saved: Mapped) -> "Extent":
        return cls(
            cast("list[int]", saved["shape"]),
            cast("Place | None", saved["place"]),
            cast("list[int]", saved["size"]),
        )

    def saved(self) -> Mapped:
        return {"shape": self.shape, "place": self.place, "size": self.size}

    def holds(self, item: object) -> bool:
        """Whether an optimizer's state of the tensor is laid out like it, and no single number."""
        return isinstance(item, Tensor) and list(item.shape) == self.size != []


def extents_of(state: TrainingState) -> Mapped:
    """Those of all parameters on this rank, in the form that is saved."""
    return {
        MODULES: {
            name: {key: Extent.of(item).saved() for key, item in module.named_parameters()}
            for name, module in state.modules.items()
        },
        OPTIMIZERS: {
            index: [Extent.of(item).saved() for item in parameters_of(optimizer)]
            for index, optimizer in state.optimizers.items()
        },
    }


def gathered(base: Mapped, parts: Sequence[Loaded], state: TrainingState) -> Mapped:
    """A capture with this rank's part of each tensor, cut out of the parts of all ranks; everything
    else is that of `base`. Raises StateMismatchError, KeyError or IndexError if they do not fit."""
    saved = [_Part(one) for one in parts]
    modules = {
        name: _gathered_module(name, part, saved, state.modules[name])
        for name, part in cast("dict[str, Mapped]", base[MODULES]).items()
    }
    # Replicas leave their optimizers to rank 0.
    numbers = cast("dict[int, Mapped]", base[OPTIMIZERS]) or saved[0].optimizers
    optimizers = {
        index: _gathered_optimizer(index, saved, state.optimizers[index]) for index in numbers
    }
    return {**base, MODULES: modules, OPTIMIZERS: optimizers}


class _Part:
    """What one rank saved, with the extents of its tensors."""

    def __init__(self, loaded: Loaded) -> None:
        self._modules = cast("dict[str, Mapped]", loaded.tree[MODULES])
        self._of_modules = cast("dict[str, dict[str, Mapped]]", loaded.places[MODULES])
        self.optimizers = cast("dict[int, Mapped]", loaded.tree[OPTIMIZERS])
        self._of_optimizers = cast("dict[int, list[Mapped]]", loaded.places[OPTIMIZERS])

    def parameters(self, module: str) -> Iterator[tuple[str, Tensor, Extent]]:
        extents = self._of_modules[module]
        for key, tensor in cast("dict[str, Tensor]", self._modules[module]["parameters"]).items():
            yield key, tensor, Extent.from_saved(extents[key])

    def state(self, optimizer: int, parameter: int) -> Iterator[tuple[str, object, Extent]]:
        """An optimizer's state of one of its parameters; nothing if that was left to rank 0."""
        if optimizer not in self.optimizers:
            return
        states = cast("dict[int, dict[str, object]]", self.optimizers[optimizer]["states"])
        extent = Extent.from_saved(self._of_optimizers[optimizer][parameter])
        for key, item in states[parameter].items():
            yield key, item, extent


def _gathered_module(name: str, part: Mapped, saved: Sequence[_Part], module: nn.Module) -> Mapped:
    scattered: dict[str, Scattered] = {}
    for one in saved:
        for key, tensor, extent in one.parameters(name):
            _add(scattered, key, tensor, extent)
    live = dict(module.named_parameters())
    parameters = {key: one.part_for(live[key]) for key, one in scattered.items() if key in live}
    return {**part, "parameters": parameters}


def _gathered_optimizer(index: int, saved: Sequence[_Part], optimizer: Optimizer) -> Mapped:
    first = saved[0].optimizers[index]
    if first.get("parameters"):
        raise StateMismatchError(
            f"optimizer {index} steps tensors that are no module's: nobody knows which "
            "part of what they are"
        )
    live = parameters_of(optimizer)
    states = {
        number: _gathered_state(index, number, saved, live[number])
        for number in cast("dict[int, Mapped]", first["states"])
    }
    sharded = {
        number: [key for key in state if _is_spread(state[key], live[number])]
        for number, state in states.items()
    }
    return {**first, "states": states, "sharded": sharded}


def _gathered_state(index: int, number: int, saved: Sequence[_Part], live: Tensor) -> Mapped:
    """One parameter's optimizer state. Tensors that are sharded like the parameter are joined from
    all parts."""
    scattered: dict[str, Scattered] = {}
    state: Mapped = {}
    for part in saved:
        for key, item, extent in part.state(index, number):
            if extent.holds(item):
                _add(scattered, key, cast(Tensor, item), extent)
            else:
                state.setdefault(key, item)
    return state | {key: one.part_for(live) for key, one in scattered.items()}


def _add(scattered: dict[str, Scattered], key: str, tensor: Tensor, extent: Extent) -> None:
    """Raises StateMismatchError."""
    if extent.place is None:
        raise StateMismatchError(f"{key}: it was written in a layout that is not known")
    scattered.setdefault(key, Scattered(extent.shape, tensor.dtype)).add(extent.place, tensor)


def _is_spread(item: object, parameter: Tensor) -> bool:
    return isinstance(item, Tensor) and item.dim() > 0 and is_sharded(parameter)
