"""Gradients that are known again without being kept alive: by their memory.

A weak reference of Python's to the tensor itself would raise into the training: torch exchanges no
tensor that has one (`torch.utils.swap_tensors`), as `model.to()` wants to with DTensors, quantised
parameters, and all others where a program has asked for it.
"""

from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class WeakGradient:
    """A gradient as it is now. A backward pass makes another, or adds to this one."""

    def __init__(self, grad: Tensor) -> None:
        memory = _memory_of(grad)
        self._memory = None if memory is None else StorageWeakRef(memory)  # type: ignore[no-untyped-call]
        self.version = version_of(grad)

    def is_of(self, grad: Tensor | None) -> bool:
        """Whether it is this one, whatever was written to it since. No later gradient is taken for
        one that is gone: what torch points to weakly has an address that it gives to nobody."""
        if grad is None or self._memory is None:
            return False
        memory = _memory_of(grad)
        # By address: another weak pointer to compare with would cost as much again.
        address: int = cast(Any, memory)._cdata if memory is not None else 0
        return address == cast(int, self._memory.cdata)

    def is_unwritten(self, grad: Tensor) -> bool:
        """Whether it is this one, and nobody has written to it since, as far as torch counts."""
        return self.is_of(grad) and version_of(grad) == self.version


def version_of(grad: Tensor) -> int:
    """Torch's count of writes, which it does not keep for a tensor made in inference mode."""
    return -1 if grad.is_inference() else grad._version  # pyright: ignore[reportPrivateUsage]


def elements_of(grad: Tensor) -> Tensor:
    """What of it lies in memory: itself, or the elements that a sparse one holds."""
    if grad.layout is torch.sparse_coo:
        return grad._values()
    return grad.values() if grad.layout in _COMPRESSED else grad


def _memory_of(grad: Tensor) -> torch.UntypedStorage | None:
    """None of a kind that has none to show. A sparse gradient that is added to has another."""
    try:
        return elements_of(grad).untyped_storage()
    except NotImplementedError:
        return None
