"""What a tensor is in memory: whether it can be written to, and whether it holds what it held."""

from collections.abc import Sequence

import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import local_of

Elements = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Where the first one lies, how many there are in each dimension, and how far apart."""


def elements_of(tensor: Tensor) -> Elements:
    """Which ones it is made of: by its address alone a view of a part would be the whole."""
    part = local_of(tensor)
    if not is_plain(part) or not part.numel():
        return (id(tensor), (), ())  # without elements all have the address 0, and none is written
    return (part.data_ptr(), tuple(part.shape), part.stride())


def rewrite(live: Tensor, saved: Tensor) -> None:
    """Copies into a tensor what it held. What it holds already is left alone: it may lie where
    nobody may write, as a file's read-only map, which its program only reads."""
    repeated = _repeated(live)
    live, saved = _once(live, repeated), _once(saved, repeated)
    if live.device.type != "cpu" or not is_same(live, saved):
        live.copy_(saved, non_blocking=True)


def may_be_rewritten(live: Tensor, saved: Tensor | None = None) -> bool:
    """Whether torch lets it be written to, and what was saved of it can stand in its elements."""
    repeated = _repeated(live)
    fits = saved is None or not repeated or _repeats(saved, repeated)
    return fits and not live.is_inference()


def is_plain(tensor: Tensor) -> bool:
    """Numbers in memory at equal distances: not sparse, nested, or in a library's own format."""
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)


def is_same(one: Tensor, other: Tensor) -> bool:
    """To the bit: -0.0 is not 0.0. False where the host's memory does not say."""
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
    """The dimensions along which it has one element again and again, as `expand` makes them."""
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
