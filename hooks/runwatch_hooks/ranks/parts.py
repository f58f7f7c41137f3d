"""Parts of tensors on several ranks, and how their stats are joined to those of the whole.

Sums of squares add up, so the norm of a tensor is the root of the sum of its parts' squared norms.
Each part's norm is a float32 and is squared in float64: the whole is off by no more than a float32
is. The greatest magnitude is the greatest of the parts', counts add, and a share of zeros is
weighted by the elements that it is a share of.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch_hooks.measuring.sharing import Sharing
from runwatch_hooks.measuring.stats import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

Stats = NDArray[np.float32]


class PartRow(msgspec.Struct, frozen=True, array_like=True):
    """One step's stats of the parts that lie on a rank."""

    segment: int
    step: int
    stats: bytes
    """(S, T) float32, little endian."""


class Columns(msgspec.Struct, frozen=True, array_like=True):
    """Which layers a rank's part rows are of, from here on."""

    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    """Elements of each that lie on the rank."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank's part of a step."""

    columns: Columns
    stats: Stats
    """(S, T) of its columns."""


def part_of(columns: Columns, row: PartRow) -> Part:
    """Raises ValueError where the bytes are not those of such columns."""
    values = np.frombuffer(row.stats, "<f4").reshape(len(STATS), len(columns.layers))
    return Part(columns, values)


class Joining:
    """Joins the parts of each step. Remembers the norms of parameters, which are not read at
    every step, for the update's ratio to them."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._norms = np.empty(0)

    def join(
        self, layout: Layout, sharing: Sharing, own: Stats, others: Mapping[int, Part]
    ) -> Stats:
        """(S, L) of whole tensors, of the stats (S, L) of rank 0's parts and the other ranks'.

        A stat of which a part is missing is absent, unless a part that is there is NaN or
        infinite: then so is the whole.
        """
        parts_CSL, sizes_CL, wanted_CL = _stacked(layout, sharing, own, others)
        joined = np.full(own.shape, ABSENT_32, np.float32)
        with np.errstate(all="ignore"):
            for stat in (GRAD_NORM, GRAD_ABSMAX, NONFINITE, ZERO_FRAC, PARAM_NORM, UPDATE_RATIO):
                values_CL = parts_CSL[:, stat]
                recorded_CL = ~is_absent(np.ascontiguousarray(values_CL)) & wanted_CL
                broken_L = (recorded_CL & ~np.isfinite(values_CL)).any(axis=0)
                known_L = broken_L | (
                    (recorded_CL == wanted_CL).all(axis=0) & wanted_CL.any(axis=0)
                )
                whole_L = _whole(stat, np.where(recorded_CL, values_CL, 0).astype(float), sizes_CL)
                joined[stat, known_L] = whole_L[known_L]
            self._to_ratios(layout, joined)
        return joined

    def _to_ratios(self, layout: Layout, joined: Stats) -> None:
        if layout is not self._layout:
            self._layout, self._norms = layout, np.zeros(len(layout.layers))
        read = ~is_absent(joined[PARAM_NORM])
        self._norms[read] = joined[PARAM_NORM, read]
        known = ~is_absent(joined[UPDATE_RATIO]) & (self._norms != 0.0)
        ratios = joined[UPDATE_RATIO, known] / self._norms[known]
        joined[UPDATE_RATIO] = ABSENT_32
        joined[UPDATE_RATIO, known] = ratios


def _stacked(
    layout: Layout, sharing: Sharing, own: Stats, others: Mapping[int, Part]
) -> tuple[Stats, NDArray[np.float64], NDArray[np.bool_]]:
    """(C, S, L) stats of all that have a part, (C, L) its size, and whether it is wanted.

    A part without elements says nothing: of five rows on four ranks, FSDP gives the last none.
    """
    ranks = sorted({rank for owners in sharing.owners for rank in owners} | {0})
    place = {name: column for column, name in enumerate(layout.layer_names)}
    parts = np.full((len(ranks), *own.shape), ABSENT_32, np.float32)
    sizes = np.zeros((len(ranks), len(place)))
    wanted = np.array([[rank in owners for owners in sharing.owners] for rank in ranks])
    parts[0], sizes[0] = own, sharing.sizes
    for index, rank in enumerate(ranks[1:], start=1):
        if rank not in others:
            continue
        part = others[rank]
        names = [(place[name], at) for at, name in enumerate(part.columns.layers) if name in place]
        to, at = [one for one, _ in names], [one for _, one in names]
        parts[index][:, to] = part.stats[:, at]
        sizes[index, to] = np.array(part.columns.sizes, float)[at]
        wanted[index, to] &= sizes[index, to] > 0
    wanted[0] &= sizes[0] > 0
    return parts, sizes, wanted


def _whole(
    stat: int, values_CL: NDArray[np.float64], sizes_CL: NDArray[np.float64]
) -> NDArray[np.float64]:
    if stat == GRAD_ABSMAX:
        return np.asarray(values_CL.max(axis=0))
    if stat == NONFINITE:
        return np.asarray(values_CL.sum(axis=0))
    if stat == ZERO_FRAC:
        return np.asarray((values_CL * sizes_CL).sum(axis=0) / sizes_CL.sum(axis=0))
    return np.asarray(np.sqrt(np.square(values_CL).sum(axis=0)))
