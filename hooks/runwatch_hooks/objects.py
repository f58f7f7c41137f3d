"""What of a program is watched: its own objects, taken as `attach` is given them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.actions import Generator, HasState
from runwatch_hooks.errors import AttachError

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What of a program is watched, and goes back with a rollback."""

    modules: Mapping[str, nn.Module]
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[HasState] = ()
    scalers: Sequence[HasState] = ()
    extra: Mapping[str, HasState | Generator] = field(
        default_factory=dict[str, "HasState | Generator"]
    )


def modules_of(model: nn.Module | Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    modules = {"": model} if isinstance(model, nn.Module) else dict(model)
    for name, module in modules.items():
        if not _is_module(module):
            raise AttachError(f"model {name!r}: found {type(module).__name__}, wanted a Module")
    return modules


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> tuple[Optimizer, ...]:
    return _several(given, _is_optimizer, "optimizer")


def stateful_of(given: HasState | Sequence[HasState] | None, place: str) -> tuple[HasState, ...]:
    """Schedulers, or scalers."""
    return _several(given, _has_state, place)


def _several(
    given: _Item | Sequence[_Item] | None, fits: Callable[[object], bool], place: str
) -> tuple[_Item, ...]:
    if given is None:
        return ()
    items = tuple(cast("Sequence[_Item]", given)) if isinstance(given, Sequence) else (given,)
    for item in items:
        if not fits(item):
            raise AttachError(f"{place}: found {type(item).__name__}, wanted a torch {place}")
    return items


def _is_module(item: object) -> bool:
    return isinstance(item, nn.Module)


def _is_optimizer(item: object) -> bool:
    return isinstance(item, Optimizer)


def _has_state(item: object) -> bool:
    return isinstance(item, HasState)


def extra_of(
    extra: Mapping[str, HasState | Generator] | None, dataloader: object | None
) -> dict[str, HasState | Generator]:
    items = dict(extra or {})
    if isinstance(dataloader, HasState):
        items["dataloader"] = dataloader
    return items
