"""Recognises a gradient again without keeping it alive, by a weak reference to its storage.

A Python weak reference to the tensor itself would raise into the training:
`torch.utils.swap_tensors` refuses tensors that have one. `model.to()` uses it for DTensors and
quantised parameters, and for all others if the program has asked for it.
"""

from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class WeakGradient:
    """A gradient at one moment. A backward pass replaces it or adds to it."""

    def __init__(self, grad: Tensor) -> None:
        memory = _memory_of(grad)
        self._memory = None if memory is None else StorageWeakRef(memory)  # type: ignore[no-untyped-call]
        self.version = version_of(grad)

    def is_of(self, grad: Tensor | None) -> bool:
        """Whether `grad` is the same tensor, whatever was written to it since. A later gradient is
        never mistaken for one that is gone: while a weak reference exists, torch does not reuse the
        address of the storage object."""
        if grad is None or self._memory is None:
            return False
        memory = _memory_of(grad)
        # Compared by address: creating a second weak reference would double the cost.
        address: int = cast(Any, memory)._cdata if memory is not None else 0
        return address == cast(int, self._memory.cdata)

    def is_unwritten(self, grad: Tensor) -> bool:
        """Whether `grad` is the same tensor and, by torch's count, was not written to since."""
        return self.is_of(grad) and version_of(grad) == self.version


def version_of(grad: Tensor) -> int:
    """Torch's count of writes; -1 for a tensor made in inference mode, which has none."""
    return -1 if grad.is_inference() else grad._version  # pyright: ignore[reportPrivateUsage]


def elements_of(grad: Tensor) -> Tensor:
    """The tensor itself, or the stored elements of a sparse one."""
    if grad.layout is torch.sparse_coo:
        return grad._values()
    return grad.values() if grad.layout in _COMPRESSED else grad


def _memory_of(grad: Tensor) -> torch.UntypedStorage | None:
    """The storage; None for a kind of tensor without one. Adding to a sparse gradient changes
    it."""
    try:
        return elements_of(grad).untyped_storage()
    except NotImplementedError:
        return None


class GradientVersion:
    """A gradient at one moment. A backward pass replaces the tensor or writes to it. Unscaling by a
    gradient scaler writes to it as well, but torch does not count that."""

    def __init__(self, grad: Tensor, num_writes: int) -> None:
        """`num_writes` is the number of writes by the clip itself that are still to come."""
        self._grad = WeakGradient(grad)
        self._version = self._grad.version + num_writes

    def is_unchanged(self, grad: Tensor | None) -> bool:
        return grad is not None and self._grad.is_of(grad) and version_of(grad) <= self._version
