"""Names of trained tensors: their modules' names, without the parts that wrappers add."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runwatch.layouts import MAX_NAME_BYTES

_WRAPPERS: Final = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
"""Path parts that DDP, torch.compile, FSDP and activation checkpointing add."""


class HasGroups(Protocol):
    """An optimizer, or a KnownOptimizer."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class NamedTensor:
    """A trained tensor with its names; a tied weight has several."""

    tensor: Tensor
    name: str
    aliases: tuple[str, ...]


def name_tensors(
    modules: Mapping[str, nn.Module],
    optimizers: Sequence[HasGroups],
    kept: Collection[int] = frozenset(),
) -> tuple[NamedTensor, ...]:
    """All trained tensors: those of modules in their order, then those only in optimizers.

    Left out are frozen tensors, unless their id is in `kept`; parameters that a lazy module has
    not created yet, which have no shape; and tensors on the meta device, which have no values.
    """
    names: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, tensor in _all_named(modules, optimizers):
        is_trained = tensor.requires_grad or id(tensor) in kept
        if is_trained and not is_lazy(tensor) and not tensor.is_meta:
            tensors[id(tensor)] = tensor
            names.setdefault(id(tensor), []).append(name)
    taken: set[str] = set()
    return tuple(
        NamedTensor(tensor, _unused(names[key][0], taken), tuple(names[key][1:]))
        for key, tensor in tensors.items()
    )


def clean_name(name: str) -> str:
    """A parameter's path without the parts that wrappers add."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    return _shorten(".".join(parts) or name)


def parameters_of(module: nn.Module, prefix: str) -> list[tuple[str, Tensor]]:
    """A module's parameters with their names; tied ones occur under each name.

    Uses the module's own `named_parameters`. A user's override may not have the keyword for tied
    parameters; then torch's is used.
    """
    try:
        return list(module.named_parameters(prefix, remove_duplicate=False))
    except TypeError:
        return list(nn.Module.named_parameters(module, prefix, remove_duplicate=False))


def named_parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """A module and its submodules with their paths; its own is empty."""
    return list(cast("Iterator[tuple[str, nn.Module]]", module.named_modules()))


def _all_named(
    modules: Mapping[str, nn.Module], optimizers: Sequence[HasGroups]
) -> Iterator[tuple[str, Tensor]]:
    known: set[int] = set()
    for prefix, module in modules.items():
        for name, parameter in parameters_of(module, prefix):
            known.add(id(parameter))
            yield clean_name(name), parameter
    for name, tensor in _optimizer_named(optimizers):
        if id(tensor) not in known:
            known.add(id(tensor))
            yield name, tensor


def _optimizer_named(optimizers: Iterable[HasGroups]) -> Iterator[tuple[str, Tensor]]:
    for k, optimizer in enumerate(optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for p, tensor in enumerate(group["params"]):
                yield f"opt{k}.g{g}.p{p}", tensor


def _unused(name: str, taken: set[str]) -> str:
    """The name, with a number if cleaning has made two names equal."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}~{count}"
    taken.add(candidate)
    return candidate


def _shorten(name: str) -> str:
    """A name cut to the protocol's limit. Its end is kept, which says more than its beginning."""
    octets = name.replace("\0", "?").encode()
    if len(octets) <= MAX_NAME_BYTES - 8:  # room for a number
        return octets.decode()
    return octets[-(MAX_NAME_BYTES - 8) :].decode(errors="ignore")
