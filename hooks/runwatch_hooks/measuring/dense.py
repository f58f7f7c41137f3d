"""A tensor's elements as one dimension, in the order of memory."""

import torch
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
