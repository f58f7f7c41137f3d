"""Compares the fingerprints of all ranks, parameter by parameter.

Which parameters are copies is not asked of the program, except where a DistributedDataParallel
holds them. It is seen: those that were equal on some ranks before the first step are copies, if
these ranks are known to train together. Two ranks are known to do so once a parameter that has
moved is equal on both, or if some were equal at the beginning and others were not: then the equal
ones are so on purpose, and the others are parts of a larger one (tensor parallelism by hand).
Without that, ranks that began alike and went different ways would be taken for replicas: stages of
a pipeline or members of an ensemble, made with one seed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.omissions import MAX_LAYERS
from runwatch_hooks.ranks.letters import BEFORE_THE_FIRST, Fingerprint, Trait
from runwatch_hooks.ranks.replicas import ROUND
from runwatch_hooks.ranks.standing import Drift

_MAX_OPEN: Final = 512
_FORGOTTEN_AFTER: Final = 2 * ROUND
"""Steps without a comparison; more than a round, because a sample is skipped if there is no room
for it."""

Values = NDArray[np.uint32]
Sets = NDArray[np.int64]
"""(R,) for each rank of a group, the place of the first of those that it belongs to."""


@dataclass(slots=True)
class _Copies:
    """What is known of one parameter."""

    sets_R: Sets
    """The ranks whose copies are equal, or have been."""
    values_R: Values | None = None
    """At the last comparison, or before the first step."""
    is_bound: bool = False
    is_whole: bool = False
    """Whether all ranks hold copies."""
    is_settled: bool = False
    """Whether it was compared after a step."""
    have_agreed: bool = False
    """Whether all copies were ever equal after a step."""
    drifted: tuple[int, ...] = ()
    """The ranks that differed at the last comparison."""
    step: int = 0

    def note(self, step: int, values_R: Values, drifted: tuple[int, ...] = ()) -> None:
        """They were compared after a step."""
        self.step, self.values_R, self.drifted = step, values_R, drifted
        self.is_settled = True
        self.is_whole = not self.sets_R.any()
        self.have_agreed = self.have_agreed or not drifted


@dataclass(slots=True)
class _Comparison:
    """The fingerprints of one step and group of ranks, as they arrive."""

    told: dict[int, Fingerprint] = field(default_factory=dict[int, Fingerprint])


class ReplicaJudge:
    """Used by one thread."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, tuple[int, ...], bool], _Comparison] = {}
        self._copies: dict[int, _Copies] = {}
        self._together = _Together()
        self._is_bound = False
        self._have_met = False
        """Whether ranks ever sent fingerprints of the same parameters."""
        self._are_all_marked = False
        self._has_begun = False
        """Whether ranks sent fingerprints from before the first step."""
        self._first_step: int | None = None
        self._is_told = False
        self._drifted: tuple[Drift, ...] | None = ()
        """None: to be found again."""

    @property
    def has_compared(self) -> bool:
        """Whether there are copies: only those can drift apart."""
        return self._is_bound or self._together.is_known

    @property
    def drifted(self) -> tuple[Drift, ...]:
        """The ranks that differ from their replicas."""
        if self._drifted is None:
            self._drifted = _drifts_in(self._copies)
        return self._drifted

    def take(self, rank: int, print_: Fingerprint) -> str | None:
        """Compare a rank's fingerprint. Returns a message, at most once: that the ranks' parameters
        were never equal, or that there are no copies."""
        place = print_.step, print_.ranks, print_.is_bound
        comparison = self._open.setdefault(place, _Comparison())
        comparison.told[rank] = print_
        if len(comparison.told) < len(print_.ranks):
            while len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]
            return None
        del self._open[place]
        told = [comparison.told[one] for one in print_.ranks]
        keys, places_RK = _in_common([np.frombuffer(one.keys, "<u4") for one in told])
        values_RK = np.stack(
            [
                np.frombuffer(one.values, "<u4")[where]
                for one, where in zip(told, places_RK, strict=True)
            ]
        )
        if print_.step == BEFORE_THE_FIRST:
            places: list[int] = places_RK[0].tolist()
            traits = [told[0].traits[place] for place in places]
            self._begin(print_.ranks, keys, values_RK, traits)
            return None
        self._have_met |= bool(keys)
        self._is_bound |= print_.is_bound and bool(keys)
        are_alike_K = (values_RK == values_RK[0]).all(axis=0)
        are_together = print_.is_bound or not self._together.sets_of(print_.ranks).any()
        for k, key in enumerate(keys):
            copies = self._copies.get(key)
            if copies is not None and copies.is_whole and are_together and are_alike_K[k]:
                copies.note(print_.step, values_RK[:, k])  # nearly all, so nothing else is done
            else:
                self._compare(print_, key, values_RK[:, k])
        self._forget(print_.step)
        self._drifted = None
        return self._objection(print_)

    def _begin(
        self, ranks: Sequence[int], keys: Sequence[int], values_RK: Values, traits: Sequence[Trait]
    ) -> None:
        """See which parameters are copies."""
        self._has_begun = True
        sets = [_sets_of(values_RK[:, k]) for k in range(len(keys))]
        telling = [k for k, one in enumerate(traits) if not one.is_constant]
        of_homes: dict[int, list[Sets]] = {}
        for k in telling:
            if not traits[k].is_marked:
                of_homes.setdefault(traits[k].home, []).append(sets[k])
        for key, ours, values_R, trait in zip(keys, sets, values_RK.T, traits, strict=True):
            if trait.is_marked or (trait.is_constant and trait.num_dimensions > 1):
                ours = np.arange(len(ranks))  # to be seen equal when it has moved
            elif trait.is_constant:  # as a bias, which is split if the weight beside it is
                ours = _within(ours, *of_homes.get(trait.home, ()))
            self._copies[key] = _Copies(ours, values_R.copy())
        self._are_all_marked = all(one.is_marked for one in traits)
        is_any_marked = any(one.is_marked for one in traits)
        kinds_R = _within(np.zeros(len(ranks), np.int64), *(sets[k] for k in telling))
        for k in telling:
            if not traits[k].is_marked:
                self._together.join_where(ranks, sets[k], None if is_any_marked else kinds_R)

    def _compare(self, print_: Fingerprint, key: int, values_R: Values) -> None:
        copies = self._copies.get(key)
        if copies is None:
            copies = self._copies[key] = self._first_seen(print_, values_R)
        elif not print_.is_bound:
            self._learn(print_.ranks, copies, values_R)
        together_R = self._together.sets_of(print_.ranks)
        judged_R = copies.sets_R if copies.is_bound else _within(copies.sets_R, together_R)
        odd = _odd_ones(judged_R, values_R)
        copies.note(print_.step, values_R, tuple(print_.ranks[one] for one in odd))

    def _first_seen(self, print_: Fingerprint, values_R: Values) -> _Copies:
        """A parameter of which nothing was said before the first step: one that a wrapper holds, a
        later one, or any of a program whose steps are not seen."""
        if print_.is_bound:
            return _Copies(np.zeros(len(print_.ranks), np.int64), is_bound=True)
        copies = _Copies(_sets_of(values_R))
        if not self._has_begun:
            self._together.join_where(print_.ranks, copies.sets_R)
        return copies

    def _learn(self, ranks: Sequence[int], copies: _Copies, values_R: Values) -> None:
        """Ranks on which the parameter has moved and is equal train together. If it is so twice in
        a row, it is a copy, whatever it was at first."""
        before_R = copies.values_R
        if before_R is None or (before_R == values_R).any():
            return
        now_R = _sets_of(values_R)
        self._together.join_where(ranks, now_R)
        if copies.is_settled:
            copies.sets_R = _joined(copies.sets_R, _within(now_R, _sets_of(before_R)))

    def _forget(self, step: int) -> None:
        # A key of an earlier layout is not compared again, and would count as differing for ever.
        for copies in self._copies.values():
            if copies.step <= step - _FORGOTTEN_AFTER:
                copies.drifted = ()

    def _objection(self, print_: Fingerprint) -> str | None:
        """A message once all parameters have been compared, and none is a copy."""
        if self._first_step is None:
            self._first_step = print_.step
        is_seen = print_.step >= self._first_step + ROUND
        if self._is_told or self.has_compared or not is_seen:
            return None
        if self._have_met and self._are_all_marked:
            return None
        self._is_told = True
        if self._have_met:
            return (
                "the ranks' parameters differ from the first comparison on: they are no replicas, "
                "and are not watched for drifting apart"
            )
        return (
            "the ranks train parameters of other names or shapes, as stages of a pipeline do: "
            "layers that rank 0 does not hold are not measured"
        )


def _drifts_in(copies: Mapping[int, _Copies]) -> tuple[Drift, ...]:
    keys: dict[int, list[int]] = {}
    unreduced: Counter[int] = Counter()
    num_bound = 0
    for key, one in copies.items():
        num_bound += one.is_bound
        for rank in one.drifted:
            keys.setdefault(rank, []).append(key)
            unreduced[rank] += one.is_bound and not one.have_agreed
    return tuple(
        Drift(
            rank, len(keys[rank]), tuple(keys[rank][:MAX_LAYERS]), 2 * unreduced[rank] > num_bound
        )
        for rank in sorted(keys)
    )


class _Together:
    """The ranks that are known to train together."""

    def __init__(self) -> None:
        self._of: dict[int, int] = {}
        """Rank -> the lowest of its set."""

    @property
    def is_known(self) -> bool:
        return any(rank != lowest for rank, lowest in self._of.items())

    def sets_of(self, ranks: Sequence[int]) -> Sets:
        return _sets_of(np.array([self._of.get(rank, rank) for rank in ranks]))

    def join_where(self, ranks: Sequence[int], sets_R: Sets, kinds_R: Sets | None = None) -> None:
        """Join the ranks of each set; with `kinds_R` only of sets of more than one kind."""
        for first in np.unique(sets_R):
            mates = np.flatnonzero(sets_R == first)
            if len(mates) > 1 and (kinds_R is None or len(np.unique(kinds_R[mates])) > 1):
                self._join([ranks[one] for one in mates.tolist()])

    def _join(self, mates: Sequence[int]) -> None:
        sets = {self._of.get(rank, rank) for rank in mates}
        lowest = min(sets)
        if len(sets) > 1:
            moved = [rank for rank, its in self._of.items() if its in sets]
            self._of |= dict.fromkeys((*moved, *sets, *mates), lowest)


def _sets_of(values_R: NDArray[np.uint32] | Sets) -> Sets:
    """Sets of equal values."""
    _, firsts, places_R = np.unique(values_R, return_index=True, return_inverse=True)
    return np.asarray(firsts[places_R], np.int64)


def _within(sets_R: Sets, *others: Sets) -> Sets:
    """Each set, divided as all others are."""
    for other_R in others:
        sets_R = _sets_of(sets_R * len(sets_R) + other_R)
    return sets_R


def _joined(sets_R: Sets, other_R: Sets) -> Sets:
    """Sets that have a rank in common with one of the others become one with it."""
    together = _Together()
    places = range(len(sets_R))
    together.join_where(places, sets_R)
    together.join_where(places, other_R)
    return together.sets_of(places)


def _odd_ones(sets_R: Sets, values_R: Values) -> list[int]:
    """The places of those whose value differs from the most common of their set; of equally common
    ones, from the first place's."""
    odd: list[int] = []
    for first in np.unique(sets_R):
        mates = np.flatnonzero(sets_R == first)
        values, counts = np.unique(values_R[mates], return_counts=True)
        is_tied = counts[values == values_R[first]][0] == counts.max()
        common = values_R[first] if is_tied else values[counts.argmax()]
        odd += mates[values_R[mates] != common].tolist()
    return odd


def _in_common(keys: Sequence[NDArray[np.uint32]]) -> tuple[list[int], list[NDArray[np.intp]]]:
    """The keys that all have, and the places of these in each."""
    if all(np.array_equal(keys[0], one) for one in keys[1:]):
        return keys[0].tolist(), [np.arange(len(keys[0]))] * len(keys)
    shared = set(keys[0].tolist()).intersection(*(one.tolist() for one in keys[1:]))
    common: list[int] = [key for key in keys[0].tolist() if key in shared]
    places = [{key: place for place, key in enumerate(one.tolist())} for one in keys]
    return common, [np.array([where[key] for key in common], np.intp) for where in places]
