"""Checks that replicas on several ranks hold equal parameters.

At every eighth step, each rank adds up the bits of an eighth of its parameters, as integers. Copies
that are equal bit by bit give equal sums, in any order of addition, and a single differing bit
gives another sum. Rank 0 compares them. This reads each parameter once in 64 steps.
"""

import zlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from runwatch_hooks.measuring.dense import dense_view
from runwatch_hooks.measuring.layer_names import NamedTensor
from runwatch_hooks.measuring.numpy_view import numpy_view
from runwatch_hooks.measuring.readback import Readback, Ticket
from runwatch_hooks.measuring.statistics import NORM_TURNS, deal
from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.shards import local_of, replicas_of

EVERY: Final = 8
"""Steps between two samples, each of an eighth of the parameters."""
_MODULUS: Final = 2**24
"""Sums are taken modulo this, because they are sent as float32, which holds no larger integers."""
_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MAX_OPEN: Final = 512
_ROUND: Final = EVERY * NORM_TURNS
"""Steps in which each parameter is sampled once."""
_FORGOTTEN_AFTER: Final = 2 * _ROUND
"""Steps without a comparison; more than a round, because a sample is skipped if there is no room
for it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Parameters of which the same ranks hold copies."""

    key: int
    ranks: tuple[int, ...]
    tensors: tuple[Tensor, ...]


class ReplicaSampler:
    """Takes the fingerprints of one rank. Used by the training thread; never waits."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._named: Sequence[NamedTensor] = ()
        self._hands: list[list[_Copies]] = []
        self._sent: deque[tuple[int, _Copies, Ticket]] = deque()
        self._readbacks: dict[torch.device, Readback] = {}

    def sample(self, step: int, named: Sequence[NamedTensor]) -> list[Fingerprint]:
        """Start taking the fingerprints due after a step; returns those that have arrived."""
        if named is not self._named:
            self._named = named
            self._hands = _hands(named, self._rank, self._world_size)
        if step % EVERY == 0:
            for copies in self._hands[step // EVERY % NORM_TURNS]:
                self._send(step, copies)
        found: list[Fingerprint] = []
        while self._sent and self._sent[0][2].is_there():
            sent_at, copies, ticket = self._sent.popleft()
            value = int(ticket.values()[0])
            found.append(Fingerprint(sent_at, copies.key, copies.ranks, value))
        return found

    def _send(self, step: int, copies: _Copies) -> None:
        sums = [total for tensor in copies.tensors if (total := _sum_of_bits(tensor)) is not None]
        if not sums:
            return
        device = sums[0].device
        total = torch.stack(sums).sum().remainder(_MODULUS).to(torch.float32).reshape(1)
        if device not in self._readbacks:
            self._readbacks[device] = Readback(1, device)
        ticket = self._readbacks[device].send(total)
        if ticket is not None:  # otherwise no slot is free, and this sample is skipped
            self._sent.append((step, copies, ticket))


@dataclass(slots=True)
class _Comparison:
    values: dict[int, int] = field(default_factory=dict[int, int])


class ReplicaJudge:
    """Compares the fingerprints of all ranks. Used by one thread."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Comparison] = {}
        self._odd: dict[int, tuple[int, tuple[int, ...]]] = {}
        """Key -> the step of its last comparison, and the ranks that differed there."""
        self._are_replicas = False
        self._have_met = False
        """Whether ranks ever sent fingerprints of the same parameters."""
        self._newest: dict[int, int] = {}
        """Rank -> the last step of its fingerprints, which arrive in order."""
        self._is_told = False

    @property
    def has_compared(self) -> bool:
        """Whether copies were ever found equal: only those can drift apart."""
        return self._are_replicas

    @property
    def drifted(self) -> tuple[int, ...]:
        return tuple(sorted({rank for _, odd in self._odd.values() for rank in odd}))

    def take(self, rank: int, print_: Fingerprint) -> str | None:
        """Compare a rank's fingerprint. Returns a message, at most once: that the ranks' parameters
        were never equal, or that there are no copies."""
        place = print_.step, print_.key
        self._newest[rank] = print_.step
        comparison = self._open.setdefault(place, _Comparison())
        comparison.values[rank] = print_.value
        if not set(print_.ranks) <= comparison.values.keys():
            while len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]
            return self._without_copies(print_.ranks)
        del self._open[place]
        self._have_met = True
        odd = _odd_ones(comparison.values)
        self._are_replicas = self._are_replicas or not odd
        if self._are_replicas:
            self._note(print_.step, print_.key, odd)
            return None
        if self._is_told:
            return None
        self._is_told = True
        return (
            "the ranks' parameters differ from the first comparison on: they are no replicas, "
            "and are not watched for drifting apart"
        )

    def _note(self, step: int, key: int, odd: tuple[int, ...]) -> None:
        self._odd[key] = step, odd
        # A key of an earlier layout is not compared again, and would count as differing for ever.
        for old in [one for one, (at, _) in self._odd.items() if at <= step - _FORGOTTEN_AFTER]:
            del self._odd[old]

    def _without_copies(self, ranks: Sequence[int]) -> str | None:
        """A message if all these ranks are past the oldest comparison and it is still incomplete:
        then they hold different parameters."""
        oldest_step, _ = next(iter(self._open))
        passed = min(self._newest.get(rank, oldest_step) for rank in ranks)
        if self._have_met or self._is_told or passed < oldest_step + _ROUND:
            return None
        self._is_told = True
        return (
            "the ranks train parameters of other names or shapes, as stages of a pipeline do: "
            "layers that rank 0 does not hold are not measured"
        )


def _odd_ones(values: dict[int, int]) -> tuple[int, ...]:
    """The ranks whose value differs from the most common; of two equally common values, from the
    lowest rank's."""
    lowest = values[min(values)]
    common, num_common = Counter(values.values()).most_common(1)[0]
    if Counter(values.values())[lowest] == num_common:
        common = lowest
    return tuple(rank for rank, value in values.items() if value != common)


def _hands(named: Sequence[NamedTensor], rank: int, world_size: int) -> list[list[_Copies]]:
    """What is sampled at each turn, grouped by the ranks that hold copies and by device."""
    hands: list[list[_Copies]] = []
    turns = deal([one.tensor.numel() for one in named])
    for turn in range(NORM_TURNS):
        sets: dict[tuple[tuple[int, ...], torch.device], list[NamedTensor]] = {}
        for one, its_turn in zip(named, turns, strict=True):
            ranks = replicas_of(one.tensor, rank, world_size)
            part = local_of(one.tensor)
            # DeepSpeed's stage 3 keeps parameters empty between uses: there is nothing to compare.
            if its_turn == turn and len(ranks) > 1 and part.numel():
                sets.setdefault((ranks, part.device), []).append(one)
        hands.append([_copies(ranks, mates) for (ranks, _), mates in sets.items()])
    return hands


def _copies(ranks: tuple[int, ...], named: Sequence[NamedTensor]) -> _Copies:
    facts = [(one.name, *one.tensor.shape) for one in named]
    return _Copies(
        key=zlib.crc32(repr((ranks, facts)).encode()),
        ranks=ranks,
        tensors=tuple(one.tensor for one in named),
    )


def _sum_of_bits(tensor: Tensor) -> Tensor | None:
    """The sum of the elements' bits as integers; None if there is no view of them."""
    flat = dense_view(local_of(tensor))
    if flat is None or flat.element_size() not in _INTEGERS:
        return None
    bits = flat.view(_INTEGERS[flat.element_size()])
    if bits.device.type == "cpu" and bits.dtype is torch.int32:
        # Numpy is four times as fast. It wraps at 2^32, which is a multiple of the modulus.
        total = int(np.add.reduce(numpy_view(bits), dtype=np.uint32))
        return torch.tensor(total, dtype=torch.int64, device="cpu")
    return bits.sum(dtype=torch.int64)
