"""Fingerprints of parameters, by which rank 0 checks that copies on several ranks are equal.

At every eighth step, each rank adds up the bits of an eighth of its parameters, as integers. Copies
that are equal bit by bit give equal sums, in any order of addition, and a single differing bit
gives another sum. This reads each parameter once in 64 steps. Those that no wrapper keeps equal are
all read once more before the first step: what was equal there on some ranks, and is not later, has
drifted apart.
"""

import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks.ranks.letters import BEFORE_THE_FIRST, Fingerprint, Trait
from runwatch_hooks.ranks.shards import is_sharded, local_of, replicas_of
from runwatch_hooks.statistics.cpu import NORM_TURNS, deal
from runwatch_hooks.statistics.dense import dense_view, numpy_view
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.statistics.readback import Readback, Ticket, to_device

_SET_ON_PARTS: Final = (
    "tensor_model_parallel",  # Megatron, Transformer Engine, NeuronX, DeepSpeed's AutoTP
    "model_parallel",  # fairscale, and Megatron before it
    "expert_model_parallel",  # MegaBlocks, NeuronX
    "expert",  # fairseq, fairscale
    "is_expert",
)
"""Attributes by which code bases mark a parameter as this rank's own part of a larger one."""
_SETS_DIM: Final = "partition_dim"
"""Likewise: the dimension that is split, or -1. Some set it on whole parameters as well, beside a
`tensor_model_parallel` that is false."""
_REDUCED: Final = "allreduce"
"""False on experts (Megatron, DeepSpeed, Tutel), whose gradients are not those of all ranks."""


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """The ranks that may hold copies of a parameter."""

    ranks: tuple[int, ...]
    is_bound: bool
    """Whether a DistributedDataParallel keeps the copies equal, so that they need not be seen equal
    to count as copies."""


class ReplicaGroups:
    """The groups of this rank's parameters, as they are wrapped now."""

    def __init__(self, modules: Mapping[str, nn.Module], rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._wrapped = _wrapped_in(modules.values())

    def of(self, tensor: Tensor) -> ReplicaGroup:
        ranks = self._wrapped.get(id(tensor))
        if ranks is not None and not is_sharded(tensor) and not is_marked(tensor):
            return ReplicaGroup(ranks, is_bound=True)
        return ReplicaGroup(replicas_of(tensor, self._rank, self._world_size), is_bound=False)


def is_marked(tensor: Tensor) -> bool:
    """Whether the program says that other ranks hold other parts of the parameter."""
    marks: Mapping[str, object] = getattr(tensor, "__dict__", {})
    if any(marks.get(name) is True for name in _SET_ON_PARTS) or marks.get(_REDUCED) is False:
        return True
    dim = marks.get(_SETS_DIM)
    return isinstance(dim, int) and dim >= 0 and _SET_ON_PARTS[0] not in marks


def _wrapped_in(modules: Iterable[nn.Module]) -> dict[int, tuple[int, ...]]:
    """Ids of the parameters whose gradients a DistributedDataParallel reduces, and over which
    ranks."""
    found: dict[int, tuple[int, ...]] = {}
    for one in {id(part): part for module in modules for part in module.modules()}.values():
        if isinstance(one, DistributedDataParallel):
            wrapper = cast(Any, one)  # torch leaves its attributes without types
            ranks = tuple(sorted(dist.get_process_group_ranks(wrapper.process_group)))
            ignored: AbstractSet[str] = wrapper.parameters_to_ignore
            module: nn.Module = wrapper.module
            if len(ranks) > 1:
                held = module.named_parameters()
                found |= {id(tensor): ranks for name, tensor in held if name not in ignored}
    return found


EVERY: Final = 8
"""Steps between two samples, each of an eighth of the parameters."""
ROUND: Final = EVERY * NORM_TURNS
"""Steps in which each parameter is sampled once."""
_BITS: Final = 32
_HALF: Final = 16
"""Sums are taken modulo 2^32 and sent in halves, as float32, which holds no larger integers."""
_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Parameters that the same ranks may hold copies of."""

    group: ReplicaGroup
    named: tuple[NamedTensor, ...]
    """Those that can be read, device by device."""
    keys: bytes
    """As in a fingerprint."""


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """A fingerprint whose numbers are on their way."""

    step: int
    copies: _Copies
    tickets: tuple[Ticket, ...]
    """One for each device."""

    def is_there(self) -> bool:
        return all(ticket.is_there() for ticket in self.tickets)


class ReplicaSampler:
    """Takes the fingerprints of one rank. Used by the training thread; never waits."""

    def __init__(
        self, rank: int, world_size: int, modules: Mapping[str, nn.Module] | None = None
    ) -> None:
        self._rank = rank
        self._world_size = world_size
        self._modules = modules or {}
        self._named: Sequence[NamedTensor] = ()
        self._hands: list[list[_Copies]] = []
        self._sent: deque[_Sent] = deque()
        self._readbacks: dict[torch.device, Readback] = {}
        self._names: dict[int, str] = {}

    def name_of(self, key: int) -> str | None:
        """The name of the parameter with this key, if this rank has one."""
        return self._names.get(key)

    def begin(self, named: Sequence[NamedTensor]) -> None:
        """The first step is about to change the parameters: start reading all of them that no
        wrapper keeps equal."""
        self._arrange(named)
        groups = {copies.group for hand in self._hands for copies in hand}
        for group in groups:
            if not group.is_bound:
                ours = [c.named for hand in self._hands for c in hand if c.group == group]
                together = tuple(one for mates in ours for one in mates)
                self._send(BEFORE_THE_FIRST, _copies(group, together))

    def sample(self, step: int, named: Sequence[NamedTensor]) -> list[Fingerprint]:
        """Start taking the fingerprints due after a step; returns those that have arrived."""
        self._arrange(named)
        if step % EVERY == 0:
            for copies in self._hands[step // EVERY % NORM_TURNS]:
                self._send(step, copies)
        found: list[Fingerprint] = []
        while self._sent and self._sent[0].is_there():
            found.append(_fingerprint(self._sent.popleft()))
        return found

    def _arrange(self, named: Sequence[NamedTensor]) -> None:
        if named is self._named:
            return
        self._named = named
        groups = ReplicaGroups(self._modules, self._rank, self._world_size)
        self._hands = _hands(named, groups)
        self._names = {
            _key(copies.group, one): one.name
            for hand in self._hands
            for copies in hand
            for one in copies.named
        }

    def _send(self, step: int, copies: _Copies) -> None:
        by_device: dict[torch.device, list[Tensor]] = {}
        for one in copies.named:
            by_device.setdefault(local_of(one.tensor).device, []).append(one.tensor)
        tickets: list[Ticket] = []
        for device, tensors in by_device.items():
            numbers = _numbers_of(tensors, device, are_first=step == BEFORE_THE_FIRST)
            readback = self._readbacks.get(device)
            if readback is None or readback.num_values < numbers.numel():
                readback = self._readbacks[device] = Readback(numbers.numel(), device)
            ticket = readback.send(numbers)
            if ticket is None:  # no slot is free, and this sample is skipped
                return
            tickets.append(ticket)
        self._sent.append(_Sent(step, copies, tuple(tickets)))


def _hands(named: Sequence[NamedTensor], groups: ReplicaGroups) -> list[list[_Copies]]:
    """What is sampled at each turn, by the ranks that hold copies. A group has a place in every
    hand, because the others wait for it, and other ranks may deal otherwise."""
    sets: dict[ReplicaGroup, list[list[NamedTensor]]] = {}
    turns = deal([one.tensor.numel() for one in named])
    for one, turn in zip(named, turns, strict=True):
        group = groups.of(one.tensor)
        # DeepSpeed's stage 3 keeps parameters empty between uses: there is nothing to compare.
        if len(group.ranks) > 1 and _bits_of(one.tensor) is not None:
            mates = sets.setdefault(group, [[] for _ in range(NORM_TURNS)])
            mates[turn].append(one)
    return [
        [_copies(group, mates[turn]) for group, mates in sets.items()] for turn in range(NORM_TURNS)
    ]


def _copies(group: ReplicaGroup, named: Sequence[NamedTensor]) -> _Copies:
    by_device = tuple(sorted(named, key=lambda one: str(local_of(one.tensor).device)))
    keys = np.array([_key(group, one) for one in by_device], "<u4")
    return _Copies(group, by_device, keys.tobytes())


def _key(group: ReplicaGroup, named: NamedTensor) -> int:
    return zlib.crc32(repr((group.ranks, named.name, *named.tensor.shape)).encode())


def _fingerprint(sent: _Sent) -> Fingerprint:
    group, named = sent.copies.group, sent.copies.named
    is_first = sent.step == BEFORE_THE_FIRST
    rows = [ticket.values().reshape(3 if is_first else 2, -1) for ticket in sent.tickets]
    numbers: NDArray[np.float32] = (
        np.concatenate(rows, axis=1) if rows else np.empty((3, 0), np.float32)
    )
    low, high = numbers[:2].astype(np.uint32)
    return Fingerprint(
        step=sent.step,
        ranks=group.ranks,
        is_bound=group.is_bound,
        keys=sent.copies.keys,
        values=(low + (high << _HALF)).astype("<u4").tobytes(),
        traits=tuple(map(_trait, named, numbers[2] != 0.0)) if is_first else (),
    )


def _trait(named: NamedTensor, is_constant: bool) -> Trait:
    home = zlib.crc32(named.name.rpartition(".")[0].encode())
    return Trait(home, bool(is_constant), is_marked(named.tensor), named.tensor.dim())


def _numbers_of(tensors: Sequence[Tensor], device: torch.device, *, are_first: bool) -> Tensor:
    """(2 * N,) float32 lower and upper halves of the sums of bits. Of the first ones (3 * N,): also
    whether all elements are alike, as those of a new bias are, which are alike everywhere."""
    bits = [flat for one in tensors if (flat := _bits_of(one)) is not None]
    sums = torch.stack([_sum(flat) for flat in bits])
    halves = [sums & (2**_HALF - 1), sums >> _HALF & (2**_HALF - 1)]
    if are_first:
        firsts = torch.stack([flat[0].to(torch.int64) for flat in bits])
        lengths = torch.tensor([len(flat) for flat in bits], dtype=torch.int64, device="cpu")
        alike = firsts * to_device(lengths, device)
        halves.append(((alike - sums) & (2**_BITS - 1)) == 0)
    return torch.cat(halves).to(torch.float32)


def _sum(bits: Tensor) -> Tensor:
    if bits.device.type == "cpu" and bits.dtype is torch.int32:
        # Numpy is four times as fast. It wraps at 2^32, which is the modulus.
        total = int(np.add.reduce(numpy_view(bits), dtype=np.uint32))
        return torch.tensor(total, dtype=torch.int64, device="cpu")
    return bits.sum(dtype=torch.int64)


def _bits_of(tensor: Tensor) -> Tensor | None:
    """The elements' bits as integers; None if there is no view of them, or no element."""
    flat = dense_view(local_of(tensor))
    if flat is None or not flat.numel() or flat.element_size() not in _INTEGERS:
        return None
    return flat.view(_INTEGERS[flat.element_size()])
