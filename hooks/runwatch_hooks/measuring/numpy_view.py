"""A numpy view of a tensor's memory.

Not by `Tensor.numpy`, after which a storage can never be resized: programs that free memory between
steps, as FSDP does, would fail.
"""

import ctypes
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_C_TYPES: Final[dict[torch.dtype, type[ctypes.c_float | ctypes.c_double | ctypes.c_uint32]]] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.int32: ctypes.c_uint32,
}


def numpy_view(flat: Tensor) -> NDArray[Any]:
    """(N,) view of a one-dimensional CPU tensor of float32 or float64, or of int32 as uint32. It
    keeps the tensor alive, and is valid until the tensor's memory is moved or freed.

    For a negated view (`Tensor.is_neg`), the signs are those in memory.
    """
    c_type, count = _C_TYPES[flat.dtype], flat.numel()
    if count == 0:
        return np.empty(0, c_type)
    stride = flat.stride(0)
    whole = (c_type * (stride * (count - 1) + 1)).from_address(flat.data_ptr())
    cast(Any, whole).owner = flat
    return np.frombuffer(memoryview(whole), c_type)[::stride]
