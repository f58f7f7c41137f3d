"""Traces where non-finite numbers come from.

A dispatch mode sees every torch operation, forward and backward. One that makes a non-finite number
from finite ones is a *birth*. Its result is marked, and so is everything computed from that. The
mark of the loss, or of a gradient, then names the culprit, while harmless infinities (of a causal
mask) are never asked for.

Anomaly detection alone is not enough: it sees NaN but not infinity, names the operation that turned
infinity into NaN (a product with zero) rather than the one that made it (a root at zero), and does
not know modules.
"""

import traceback
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

from runwatch.errors import InvalidInputError
from runwatch_hooks.state.tree import tensors_in
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


_UNWRITTEN: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "resize_"})
"""Operations whose results are uninitialised memory."""
_ON_PURPOSE: Final = frozenset(
    {
        *("masked_fill", "masked_fill_", "fill", "fill_", "full", "full_like", "new_full"),
        *("scalar_tensor", "where", "lift_fresh", "_to_copy", "copy_", "triu", "tril"),
    }
)
"""Operations that write given numbers. An infinity that they write belongs to a mask."""


@dataclass(frozen=True, slots=True, eq=False)
class Birth:
    """A non-finite number made from finite ones, or a NaN made from infinities."""

    operation: str
    """Torch's name of the operation, such as `log`."""
    kind: str
    """`NaN` or `Inf`."""
    place: Place
    parent: "Birth | None" = None
    """The birth of the infinity from which a NaN was made."""
    is_on_purpose: bool = False

    @property
    def culprit(self) -> "Birth":
        """The birth to blame: that of the infinity, unless it was a mask's."""
        parent = None if self.parent is None else self.parent.culprit
        return self if parent is None or parent.is_on_purpose else parent


class Lineage(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that marks non-finite tensors. Marked memory is kept alive until the end, so
    that its address is not reused."""

    def __init__(self, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = places
        self._marks: dict[int, tuple[Birth, torch.UntypedStorage]] = {}

    def mark_given(self, name: str, tensor: Tensor) -> None:
        """Mark a tensor that exists from the start, if it is not finite."""
        kind = _kind_of(tensor)
        if kind:
            place = Place(phase="given", module=name)
            self._mark(tensor, Birth(f"given as {name}", kind, place))

    def birth_of(self, tensor: Tensor) -> Birth | None:
        """The birth of a tensor's non-finite numbers; None if it is finite or unknown."""
        found = self._marks.get(_address(tensor))
        return None if found is None or not _kind_of(tensor) else found[0]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _UNWRITTEN:
            return func(*args, **kwargs)
        given = list(tensors_in((args, kwargs)))
        # An operation in place: look at its input first, which its result would overwrite.
        before = self._broken(given) if func._schema.is_mutable else None
        result = func(*args, **kwargs)
        made = [(one, kind) for one in tensors_in(result) if (kind := _kind_of(one))]
        if made:
            broken = self._broken(given) if before is None else before
            for tensor, kind in made:
                self._mark(tensor, self._birth(name, kind, broken))
        return result

    def _birth(self, name: str, kind: str, broken: Sequence[tuple[Birth | None, str]]) -> Birth:
        known = [(birth, its_kind) for birth, its_kind in broken if birth is not None]
        nans = [birth for birth, its_kind in known if its_kind == "NaN"]
        if nans:
            return nans[0]
        if known and kind == "Inf":
            return known[0][0]
        parent = known[0][0] if known else None
        return Birth(name, kind, self._places.now(), parent, name in _ON_PURPOSE)

    def _broken(self, given: Sequence[Tensor]) -> list[tuple[Birth | None, str]]:
        found: list[tuple[Birth | None, str]] = []
        for tensor in given:
            kind = _kind_of(tensor)
            if kind:
                mark = self._marks.get(_address(tensor))
                found.append((None if mark is None else mark[0], kind))
        return found

    def _mark(self, tensor: Tensor, birth: Birth) -> None:
        self._marks[_address(tensor)] = birth, tensor.untyped_storage()


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _kind_of(tensor: Tensor) -> str:
    """`NaN`, `Inf`, or empty if finite. Only called outside of the dispatch mode."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return ""
    if tensor.layout is not torch.strided:
        tensor = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
    if tensor.is_meta or bool(tensor.isfinite().all()):
        return ""
    return "NaN" if bool(tensor.isnan().any()) else "Inf"


class ReplayError(InvalidInputError):
    """The message names the place, what was found and what was wanted.

    Errors of a replay.

    RunwatchError (runwatch.errors)
    └── InvalidInputError (ValueError)
        └── ReplayError      a program that does not fit the bundle, or cannot be run
    """

    code = "invalid_replay"
