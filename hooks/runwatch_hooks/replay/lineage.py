"""Traces where non-finite numbers come from.

A dispatch mode sees every torch operation, forward and backward. One that makes a non-finite number
from finite ones is a *birth*. Its result is marked, and so is everything computed from that. The
mark of the loss, or of a gradient, then names the culprit, while harmless infinities (of a causal
mask) are never asked for.

Anomaly detection alone is not enough: it sees NaN but not infinity, names the operation that turned
infinity into NaN (a product with zero) rather than the one that made it (a root at zero), and does
not know modules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from runwatch_hooks.replay.places import Place, Places
from runwatch_hooks.state.tree import tensors_in

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
