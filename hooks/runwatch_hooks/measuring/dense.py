"""A tensor's elements as one dimension, in the order in which memory holds them."""

import torch
from torch import Tensor


def dense_view(tensor: Tensor) -> Tensor | None:
    """A one-dimensional view of all elements, complex ones as pairs. Of a conjugated view
    (`Tensor.is_conj`: what `.mH` makes, or autograd) the imaginary parts bear the sign that memory
    holds.

    None where no view can be: for a sparse tensor, and for one that leaves gaps in memory or
    uses an element twice (a slice, an expanded scalar).
    """
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        return None
    if plain.is_complex():
        plain = torch.view_as_real(plain.conj() if plain.is_conj() else plain)
    if not plain.is_contiguous():  # channels_last, or transposed: dense all the same
        by_stride = sorted(range(plain.dim()), key=plain.stride().__getitem__, reverse=True)
        plain = plain.permute(by_stride)
        if not plain.is_contiguous():
            return None
    return plain.view(-1)


def dense(tensor: Tensor) -> Tensor:
    """The elements in one dimension, copied where they must be.

    Of a sparse tensor only those that it holds, coalesced: the others are zeros.
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
    """How many numbers it is made of: those of a complex element are two."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)
