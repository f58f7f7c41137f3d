"""A module's training state: parameters, all buffers, extra state; no gradients."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from runwatch_hooks.actions.elements import is_plain, may_be_rewritten
from runwatch_hooks.actions.errors import StateMismatchError
from runwatch_hooks.actions.trees import HostCopies, InPlace, Mapped
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.shards import local_of

log = OwnLog(__name__)


def capture_module(module: nn.Module, copies: HostCopies, old: Mapped) -> Mapped:
    """An owned copy, including non-persistent buffers, which `state_dict` leaves out."""
    parts: Mapped = {
        "parameters": dict(module.named_parameters()),
        "buffers": {name: home._buffers[key] for name, home, key in _buffers(module)},  # pyright: ignore[reportPrivateUsage]
        "extra": {name: part.get_extra_state() for name, part in _extra(module)},
    }
    captured = {key: copies.copy(part, old.get(key)) for key, part in parts.items()}
    captured["with_grad"] = [n for n, p in module.named_parameters() if p.grad is not None]
    captured["with_plain_grad"] = [n for n, p in module.named_parameters() if _is_dense(p.grad)]
    captured["trained"] = [n for n, p in module.named_parameters() if p.requires_grad]
    return captured


def check_module(place: str, module: nn.Module, saved: Mapped) -> None:
    """Raises StateMismatchError unless the parameters match the capture and are writable."""
    found = {name: _form(p) for name, p in module.named_parameters()}
    wanted = {name: _form(p) for name, p in cast("dict[str, Tensor]", saved["parameters"]).items()}
    if found != wanted:
        names = [name for name in found | wanted if found.get(name) != wanted.get(name)]
        raise StateMismatchError(
            f"{place}.{names[0]}: found {found.get(names[0], 'no such parameter')}, "
            f"wanted {wanted.get(names[0], 'no such parameter')}"
        )
    for name, parameter in module.named_parameters():
        if not may_be_rewritten(local_of(parameter)):
            raise StateMismatchError(
                f"{place}.{name}: found an inference tensor, which torch does not let anyone write"
            )


def restore_module(
    module: nn.Module, saved: Mapped, in_place: InPlace, *, is_resumed: bool = False
) -> None:
    """Restore a capture in place. `requires_grad` of each parameter is restored too, unless
    `is_resumed`: a restarted program decides that itself."""
    parameters = cast("dict[str, Tensor]", saved["parameters"])
    for name, parameter in module.named_parameters():
        in_place.put(parameter, parameters[name], parameter.device)
    buffers = cast("dict[str, Tensor | None]", saved["buffers"])
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    for name, home, key in _buffers(module):
        if name not in buffers:  # possibly a cache that its module relies on by now
            log.warning(
                "buffer %s did not exist in the restored state, and is left unchanged", name
            )
        else:
            live = home._buffers[key]  # pyright: ignore[reportPrivateUsage]
            home._buffers[key] = cast("Tensor | None", in_place.put(live, buffers[name], device))  # pyright: ignore[reportPrivateUsage]
    extra = cast(Mapped, saved["extra"])
    for name, part in _extra(module):
        if name in extra:
            part.set_extra_state(HostCopies().copy(extra[name]))
    # In a new process nobody has had a gradient yet, and older captures do not say of what kind.
    made_anew = () if is_resumed else cast("list[str]", saved.get("with_plain_grad", []))
    with_grad = cast("list[str]", saved["with_grad"])
    _clear_gradients(module, frozenset(with_grad), frozenset(made_anew))
    if not is_resumed and "trained" in saved:  # older captures have none
        _freeze_again(module, frozenset(cast("list[str]", saved["trained"])))


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that must be finite, by name: parameters and buffers."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _is_dense(grad: Tensor | None) -> bool:
    return type(grad) is Tensor and is_plain(grad)


def _clear_gradients(
    module: nn.Module, with_grad: frozenset[str], made_anew: frozenset[str]
) -> None:
    """Set gradients to None where there was none at the capture, and to zero elsewhere. Those that
    are gone since, as after an error that the program has caught, are `made_anew`.

    They are zeroed in place, because DDP buckets and CUDA graphs hold their addresses. Optimizers
    skip parameters without a gradient, but not those with a gradient of zero (weight decay,
    momentum): an expert that was idle at the capture must be idle again.
    """
    for name, parameter in module.named_parameters():
        if name not in with_grad:
            parameter.grad = None
        elif parameter.grad is not None:
            local_of(parameter.grad).detach().zero_()
        elif name in made_anew:
            parameter.grad = torch.zeros_like(parameter)


def _freeze_again(module: nn.Module, trained: frozenset[str]) -> None:
    """Restore `requires_grad`. A layer that the program unfroze or froze after the captured step
    must not be trained, or stay frozen, before that step is reached again."""
    changed = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.is_leaf and parameter.requires_grad != (name in trained)
    }
    for name, parameter in changed.items():
        parameter.requires_grad_(name in trained)
    if changed:  # a loop that counts by itself may not repeat the freezing or unfreezing
        log.warning(
            "requires_grad was restored by the rollback: %d parameters, the first of them %s",
            len(changed),
            next(iter(changed)),
        )


def _form(tensor: Tensor) -> str:
    part = local_of(tensor)
    return f"{part.dtype} {list(part.shape)}"


def _buffers(module: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """(full name, its module, its key) of every buffer, including those that are None."""
    return [
        (f"{prefix}.{key}" if prefix else key, part, key)
        for prefix, part in _parts(module)
        for key in part._buffers  # pyright: ignore[reportPrivateUsage]
    ]


def _extra(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules with extra state, such as the scales of FP8 layers."""
    return [
        (name, part)
        for name, part in _parts(module)
        if type(part).get_extra_state is not nn.Module.get_extra_state
    ]


def _parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(cast("Iterator[tuple[str, nn.Module]]", module.named_modules()))
