"""A tensor's memory, as numpy sees it.

Not by `Tensor.numpy`: memory that has been through it can never be resized, and a program that
frees what lies between two steps, as FSDP does, would be refused.
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
    """(N,): the memory of a one-dimensional tensor on a CPU, of float32 or float64, or the bits of
    int32 without a sign. It holds the tensor, and is valid for as long as that lies where it does.

    Of a negated view (`Tensor.is_neg`) the signs are those that memory holds.
    """
    c_type, count = _C_TYPES[flat.dtype], flat.numel()
    if count == 0:
        return np.empty(0, c_type)
    stride = flat.stride(0)
    whole = (c_type * (stride * (count - 1) + 1)).from_address(flat.data_ptr())
    cast(Any, whole).owner = flat
    return np.frombuffer(memoryview(whole), c_type)[::stride]
