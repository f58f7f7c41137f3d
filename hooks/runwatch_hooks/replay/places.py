"""Where in a program an operation runs: its module, line, and backward function."""

import traceback
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.statistics.layer_names import named_parts

_OURS: Final = str(Path(__file__).parent)
_TORCH: Final = str(Path(torch.__file__).parent)


@dataclass(frozen=True, slots=True)
class Place:
    phase: str
    """`forward`, `backward`, or `given` for tensors that existed from the start."""
    module: str = ""
    """The innermost module's path; empty outside of all modules."""
    module_type: str = ""
    line: str = ""
    """`FILE:LINE in FUNCTION: CODE` of the program; in backward, that of the forward operation."""
    node: str = ""
    """The backward function, such as `SqrtBackward0`."""


class Places:
    """Follows which module is running, and which backward function.

    A backward function belongs to the module that was running when its sequence number was
    assigned: autograd numbers them in the order of the forward operations.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._names = {
            id(part): ".".join(filter(None, (prefix, path))) or type(part).__name__
            for prefix, module in modules.items()
            for path, part in named_parts(module)
        }
        self._stack: list[nn.Module] = []
        self._numbers: list[int] = []
        """Sequence numbers at which the running module changed, ascending."""
        self._modules: list[nn.Module | None] = []
        """The module from each of these numbers on."""
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        self._handles = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def now(self) -> Place:
        node: Any = torch._C._current_autograd_node()  # pyright: ignore[reportPrivateUsage]
        if node is None:
            module = self._stack[-1] if self._stack else None
            return Place("forward", *self._described(module), _line(traceback.extract_stack()))
        at = bisect_right(self._numbers, node._sequence_nr()) - 1
        module = self._modules[at] if at >= 0 else None
        return Place("backward", *self._described(module), _line_of(node), node.name())

    def _enter(self, module: nn.Module, arguments: object) -> None:
        self._stack.append(module)
        self._note()

    def _leave(self, module: nn.Module, arguments: object, result: object) -> None:
        if module in self._stack:
            del self._stack[self._stack.index(module) :]
        self._note()

    def _note(self) -> None:
        node: Any = torch._C._current_autograd_node()  # pyright: ignore[reportPrivateUsage]
        if node is not None:
            return  # a checkpointed forward is recomputed, with new sequence numbers
        self._numbers.append(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]  # pyright: ignore
        self._modules.append(self._stack[-1] if self._stack else None)

    def _described(self, module: nn.Module | None) -> tuple[str, str]:
        if module is None:
            return "", ""
        return self._names.get(id(module), ""), type(module).__name__


def _line(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost frame of the user's code."""
    for frame in reversed(frames):
        if not frame.filename.startswith((_OURS, _TORCH)):
            return f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return ""


def _line_of(node: Any) -> str:
    """The line of the forward operation, as recorded by anomaly detection."""
    told: Sequence[str] = node.metadata.get("traceback_", ())
    for entry in reversed(told):
        place, _, code = entry.strip().partition("\n")
        if not any(folder in place for folder in (_OURS, _TORCH)):
            file, line, function = (part.strip() for part in place.split(",", 2))
            name = file.removeprefix("File ").strip('"')
            number = line.removeprefix("line ")
            return f"{name}:{number} {function}: {code.strip()}"
    return ""
