"""Gradients that are known again without being kept alive: by their memory.

A weak reference of Python's to the tensor itself would raise into the training: torch exchanges no
tensor that has one (`torch.utils.swap_tensors`), as `model.to()` wants to with DTensors, quantised
parameters, and all others where a program has asked for it.
"""

from typing import Final, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class WeakGradient:
    """A gradient as it is now. A backward pass makes another, or adds to this one."""

    def __init__(self, grad: Tensor) -> None:
        self._memory = _memory_of(grad)
        self.version = version_of(grad)

    def is_of(self, grad: Tensor | None) -> bool:
        """Whether it is this one, whatever was written to it since. No later gradient is taken for
        one that is gone: what torch points to weakly has an address that it gives to nobody."""
        if grad is None or self._memory is None:
            return False
        memory = _memory_of(grad)
        return memory is not None and cast(bool, memory == self._memory)


def version_of(grad: Tensor) -> int:
    """Torch's count of writes, which it does not keep for a tensor made in inference mode."""
    return -1 if grad.is_inference() else grad._version  # pyright: ignore[reportPrivateUsage]


def _memory_of(grad: Tensor) -> StorageWeakRef | None:
    """None of a kind that has none to show. A sparse gradient that is added to has another."""
    try:
        if grad.layout is torch.sparse_coo:
            grad = grad._values()
        elif grad.layout in _COMPRESSED:
            grad = grad.values()
        return StorageWeakRef(grad.untyped_storage())  # type: ignore[no-untyped-call]
    except NotImplementedError:
        return None
