"""A tensor's memory as one dimension, for torch and for numpy."""

import ctypes
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def dense_view(tensor: Tensor) -> Tensor | None:
    """A one-dimensional view of all elements, as `in_memory_order`."""
    ordered = in_memory_order(tensor)
    return None if ordered is None else ordered.view(-1)


def in_memory_order(tensor: Tensor) -> Tensor | None:
    """A contiguous view of all elements, with the dimensions in the order of memory; complex ones
    as pairs. For a conjugated view (`Tensor.is_conj`, made by `.mH` or autograd) the imaginary
    parts have the sign in memory.

    None if there is no such view: for a sparse tensor, and for one with gaps in memory or repeated
    elements (a slice, an expanded scalar).
    """
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        return None
    if plain.is_complex():
        plain = torch.view_as_real(plain.conj() if plain.is_conj() else plain)
    if not plain.is_contiguous():  # channels_last or transposed tensors are dense as well
        by_stride = sorted(range(plain.dim()), key=plain.stride().__getitem__, reverse=True)
        plain = plain.permute(by_stride)
        if not plain.is_contiguous():
            return None
    return plain


def dense(tensor: Tensor) -> Tensor:
    """The elements in one dimension, copied if necessary.

    Of a sparse tensor only the stored elements, coalesced; the others are zeros.
    """
    view = dense_view(tensor)
    if view is not None:
        return view
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        plain = plain.coalesce().values() if plain.is_sparse else plain.values()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain.contiguous().view(-1)


def num_parts(tensor: Tensor) -> int:
    """How many real numbers it consists of; a complex element counts as two."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


# Not by `Tensor.numpy`, after which a storage can never be resized: programs that free memory
# between steps, as FSDP does, would fail.

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
