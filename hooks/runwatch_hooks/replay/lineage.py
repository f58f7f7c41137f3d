"""Where non-finite numbers are born, and which of them become which.

Every operation of torch, forward and backward, passes a dispatch mode here. One that makes a
non-finite number of finite ones is a *birth*; what it makes carries its mark, and so does what is
made of that. Asking the loss, or a gradient, for its mark then names the culprit, while infinities
that do no harm (a causal mask's) are born and forgotten.

Anomaly detection alone would not do: it sees NaN but no infinity, names what turned infinity into
NaN (a product with zero) rather than what made it (a root at zero), and knows no modules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from runwatch_hooks.actions.trees import tensors_in
from runwatch_hooks.replay.places import Place, Places

_UNWRITTEN: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "resize_"})
"""Their results are whatever lay in memory."""
_ON_PURPOSE: Final = frozenset(
    {
        *("masked_fill", "masked_fill_", "fill", "fill_", "full", "full_like", "new_full"),
        *("scalar_tensor", "where", "lift_fresh", "_to_copy", "copy_", "triu", "tril"),
    }
)
"""They write a number that they are given: an infinity among these is a mask's."""


@dataclass(frozen=True, slots=True, eq=False)
class Birth:
    """A non-finite number, made of finite ones or, a NaN, of infinities."""

    operation: str
    """As torch calls it, such as `log`."""
    kind: str
    """`NaN` or `Inf`."""
    place: Place
    parent: "Birth | None" = None
    """Of the infinity that a NaN was made of."""
    is_on_purpose: bool = False

    @property
    def culprit(self) -> "Birth":
        """Whom to blame: who made the infinity, unless that was a mask."""
        parent = None if self.parent is None else self.parent.culprit
        return self if parent is None or parent.is_on_purpose else parent


class Lineage(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, marks what is not finite. Marked memory is kept until the end, so that its
    address is not given to another tensor."""

    def __init__(self, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places = places
        self._marks: dict[int, tuple[Birth, torch.UntypedStorage]] = {}

    def mark_given(self, name: str, tensor: Tensor) -> None:
        """A tensor that is there from the start; a mark for it only where it is not finite."""
        kind = _kind_of(tensor)
        if kind:
            place = Place(phase="given", module=name)
            self._mark(tensor, Birth(f"given as {name}", kind, place))

    def birth_of(self, tensor: Tensor) -> Birth | None:
        """Of what is not finite in a tensor; None where it is finite or nobody knows."""
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
        # What is written in place is looked at before, or its own result would excuse it.
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
    """`NaN`, `Inf`, or empty for finite. Not seen by any dispatch mode."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return ""
    if tensor.layout is not torch.strided:
        tensor = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
    if tensor.is_meta or bool(tensor.isfinite().all()):
        return ""
    return "NaN" if bool(tensor.isnan().any()) else "Inf"
