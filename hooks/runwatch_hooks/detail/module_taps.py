"""Forward hooks on modules, during one step, that pass on each module's output.

They do nothing inside torch.compile (a traced module is one operation without outputs), while a
backward pass recomputes activations, in evaluation, while a CUDA graph is captured, and under
torch.jit, functorch and the like, whose tensors hold no values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from runwatch.layouts import MAX_LAYERS, MAX_NAME_BYTES
from runwatch_hooks.faults import Faults
from runwatch_hooks.statistics.layer_names import clean_name
from runwatch_hooks.step.torch_hooks import Uncopied, is_capturing, is_in_backward

See = Callable[[int, Tensor], None]
"""Called with a module's index in `names`, and the tensor that it returned."""

_ROOT: Final = "(model)"
_PATHS_OF_ROOT: Final = ("", "module")
"""The second is the module inside DDP, with the same output."""
_PLAIN: Final = (Tensor, nn.Parameter)
_DEPTH: Final = 3
"""Nesting depth to which dicts and tuples are searched for a tensor."""


class ModuleTaps:
    """Hooks on the modules of a model whose outputs can be seen."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        see: See,
        faults: Faults,
        disable: Callable[[], None] = lambda: None,
    ) -> None:
        """`disable` is called after a fault of the hook, which is kept from the model's forward."""
        self._see = see
        self._faults = faults
        self._disable = disable
        self._roots = tuple(modules.values())
        found = dict(_visible(modules))
        self._modules = tuple(found.values())[:MAX_LAYERS]
        self.names = tuple(found)[:MAX_LAYERS]
        self._at_roots: list[RemovableHandle] = []
        self._handles: list[RemovableHandle] = []

    def open(self) -> None:
        for root in self._roots:
            if not _is_compiled(root):
                begin = Uncopied(self._begin_forward)
                self._at_roots.append(root.register_forward_pre_hook(begin))
        self._put_on()

    def close(self) -> None:
        for handle in self._at_roots:
            handle.remove()
        self._at_roots = []
        self._take_off()

    def _put_on(self) -> None:
        for place, module in enumerate(self._modules):
            # Kept one by one: an interrupt between two leaves none behind.
            hear = Uncopied(partial(self._hear, place))
            self._handles.append(module.register_forward_hook(hear))

    def _take_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _begin_forward(self, module: nn.Module, args: object) -> None:
        """Remove the hooks in evaluation: a module with a hook may lose a fast path, as torch's
        TransformerEncoder does."""
        if torch.compiler.is_compiling():
            return
        with self._faults.guard("activations", self._disable):
            if not self._is_training:
                self._take_off()
            elif not self._handles:
                self._put_on()

    @property
    def _is_training(self) -> bool:
        return any(root.training for root in self._roots)

    def _hear(self, place: int, module: nn.Module, args: object, output: object) -> None:
        if not torch.compiler.is_compiling():  # or it would cause a graph break
            self._take(place, output)

    def _take(self, place: int, output: object) -> None:
        with self._faults.guard("activations", self._disable):
            if _is_elsewhere() or is_capturing():
                return
            if not self._is_training:
                return
            tensor = _first_tensor(output, _DEPTH)
            if tensor is not None:
                self._see(place, tensor.detach())


def _visible(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    for prefix, root in modules.items():
        yield from _visible_below(root, prefix, seen=set())


def _visible_below(module: nn.Module, path: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(module) in seen or _is_compiled(module):
        return
    seen.add(id(module))
    name = _ROOT if path in _PATHS_OF_ROOT else clean_name(path)
    # A Sequential's output is that of its last child.
    if not isinstance(module, nn.Sequential) and len(name.encode()) <= MAX_NAME_BYTES:
        yield name, module
    for child_name, child in module.named_children():
        yield from _visible_below(child, f"{path}.{child_name}" if path else child_name, seen)


def _is_compiled(module: nn.Module) -> bool:
    return (
        isinstance(module, torch.jit.ScriptModule)
        # Not by `hasattr`: a module of the program's may answer to any name.
        or "_orig_mod" in module._modules  # pyright: ignore[reportPrivateUsage]
        or getattr(module, "_compiled_call_impl", None) is not None
    )


def _is_elsewhere() -> bool:
    """Whether a backward pass is recomputing activations, or the call is traced or vmapped."""
    c = cast(Any, torch)._C  # torch's own checks, which have no public names
    is_elsewhere: bool = (
        is_in_backward()
        or c._get_tracing_state() is not None
        or c._functorch.peek_interpreter_stack() is not None
    )
    return is_elsewhere


def _first_tensor(output: object, depth: int) -> Tensor | None:
    """The first floating-point tensor that is not 0-dimensional. In the outputs of Hugging Face's
    models, which begin with the loss, it is the one after that."""
    if isinstance(output, Tensor):
        is_plain = type(output) in _PLAIN and output.layout is torch.strided
        is_plain = is_plain and not output.is_nested
        return output if is_plain and output.is_floating_point() and output.dim() else None
    if depth == 0:
        return None
    parts: Sequence[object] = ()
    if isinstance(output, Mapping):
        parts = list(cast("Mapping[object, object]", output).values())
    elif isinstance(output, (tuple, list)):
        parts = cast("Sequence[object]", output)
    found = (_first_tensor(part, depth - 1) for part in parts)
    return next((tensor for tensor in found if tensor is not None), None)
