"""The program's own objects, in the forms that `attach` accepts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.errors import AttachError
from runwatch_hooks.ranks.shards import LossScale, ZeroOptimizer, is_zero
from runwatch_hooks.state import Generator, HasState

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects that are watched, and restored by a rollback."""

    modules: Mapping[str, nn.Module]
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[HasState] = ()
    scalers: Sequence[HasState] = ()
    extra: Mapping[str, HasState | Generator] = field(
        default_factory=dict[str, "HasState | Generator"]
    )


def modules_of(model: nn.Module | Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    if not (_is_module(model) or _is_mapping(model)):
        raise AttachError(f"model: found {_found(model)}, wanted a Module or a mapping of Modules")
    modules = {"": model} if isinstance(model, nn.Module) else dict(model)
    if not modules:
        raise AttachError("model: found an empty mapping, wanted at least one Module")
    for name, module in modules.items():
        if not _is_text(name):
            raise AttachError(f"model: found the name {name!r}, wanted a text")
        if not _is_module(module):
            raise AttachError(f"model {name!r}: found {type(module).__name__}, wanted a Module")
    return modules


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> tuple[Optimizer, ...]:
    """The torch optimizers; of one of DeepSpeed's, the torch optimizer that it wraps."""
    optimizers = _several(given, _is_optimizer, "optimizer")
    if not optimizers:
        raise AttachError(f"optimizer: found {_found(given)}, wanted at least one torch optimizer")
    return tuple(one.optimizer if is_zero(one) else one for one in optimizers)


def zero_optimizers_of(given: object) -> tuple[ZeroOptimizer, ...]:
    """Those of the optimizers that are DeepSpeed's."""
    items = cast("Sequence[object]", given) if isinstance(given, Sequence) else (given,)
    return tuple(one for one in items if is_zero(one))


def stateful_of(given: HasState | Sequence[HasState] | None, place: str) -> tuple[HasState, ...]:
    """Schedulers or scalers; `place` is the argument's name. Raises AttachError for others."""
    return _several(given, _has_state, place)


def _several(
    given: _Item | Sequence[_Item] | None, fits: Callable[[object], bool], place: str
) -> tuple[_Item, ...]:
    if given is None:
        return ()
    items = tuple(cast("Sequence[_Item]", given)) if isinstance(given, Sequence) else (given,)
    for item in items:
        if not fits(item):
            hint = "; of a wrapper, give the one that it wraps" if hasattr(item, "step") else ""
            raise AttachError(f"{place}: found {_found(item)}, wanted a torch {place}{hint}")
    return items


def _found(item: object) -> str:
    kind = type(item).__name__
    is_empty = isinstance(item, (tuple, list)) and not item
    return "none" if item is None or is_empty else kind


def _is_text(item: object) -> bool:
    return isinstance(item, str)


def _is_module(item: object) -> bool:
    return isinstance(item, nn.Module)


def _is_optimizer(item: object) -> bool:
    return isinstance(item, Optimizer) or is_zero(item)


def _is_mapping(item: object) -> bool:
    return isinstance(item, Mapping)


def _has_state(item: object) -> bool:
    return isinstance(item, HasState)


def _can_be_kept(item: object) -> bool:
    return isinstance(item, HasState | Generator)


def extra_of(
    extra: Mapping[str, HasState | Generator] | None,
    dataloader: object | None,
    zeros: Sequence[ZeroOptimizer] = (),
) -> dict[str, HasState | Generator]:
    """The user's `extra`, the loader if it has a `state_dict`, and DeepSpeed's loss scalers."""
    if extra is not None and not _is_mapping(extra):
        raise AttachError(f"extra: found {_found(extra)}, wanted a mapping")
    items = dict(extra or {})
    for name, item in items.items():
        if not _can_be_kept(item):
            wanted = "wanted an object with `state_dict` and `load_state_dict`, or a generator"
            raise AttachError(f"extra {name!r}: found {_found(item)}, {wanted}")
    if isinstance(dataloader, HasState):
        items["dataloader"] = dataloader
    items |= {f"deepspeed.loss_scale{index}": LossScale(one) for index, one in enumerate(zeros)}
    return items
