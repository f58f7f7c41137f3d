"""A tensor's memory: which elements it has, whether they can be written, whether they changed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import local_of

Elements = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Address of the first element, shape, strides. Identifies a tensor's elements."""


def elements_of(tensor: Tensor) -> Elements:
    """The elements of a tensor. The address alone would not tell a view of a part from the
    whole."""
    part = local_of(tensor)
    if not is_plain(part) or not part.numel():
        return (id(tensor), (), ())  # empty tensors all have the address 0
    return (part.data_ptr(), tuple(part.shape), part.stride())


def rewrite(live: Tensor, saved: Tensor) -> None:
    """Copy saved values into a tensor. If it holds them already it is not written to, because its
    memory may be read-only, such as a mapped file that the program only reads."""
    repeated = _repeated(live)
    live, saved = _once(live, repeated), _once(saved, repeated)
    if live.device.type != "cpu" or not is_same(live, saved):
        live.copy_(saved, non_blocking=True)


def may_be_rewritten(live: Tensor, saved: Tensor | None = None) -> bool:
    """Whether torch allows writing to it, and its elements can hold the saved values."""
    repeated = _repeated(live)
    fits = saved is None or not repeated or _repeats(saved, repeated)
    return fits and not live.is_inference()


def is_plain(tensor: Tensor) -> bool:
    """Whether it is strided: not sparse, nested, quantised, or in another format."""
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the bit (-0.0 is not 0.0). False if that cannot be seen
    without leaving the host's memory."""
    for tensor in (one, other):
        if not is_plain(tensor) or tensor.device.type != "cpu":
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    lying = tensor.detach().contiguous()
    return lying.as_strided((lying.numel(),), (1,)).view(torch.uint8)


def _repeated(tensor: Tensor) -> tuple[int, ...]:
    """The dimensions along which a single element is repeated, as by `expand`."""
    if not is_plain(tensor):
        return ()
    lying = enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    return tuple(dim for dim, (size, stride) in lying if size > 1 and stride == 0)


def _once(tensor: Tensor, repeated: Sequence[int]) -> Tensor:
    for dim in repeated:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _repeats(tensor: Tensor, repeated: Sequence[int]) -> bool:
    return is_same(_once(tensor, repeated).expand_as(tensor), tensor)
