"""Joins the stats of a tensor's parts on several ranks to the stats of the whole tensor.

Sums of squares add up, so the norm of a tensor is the root of the sum of its parts' squared norms.
Each part's norm is a float32 and is squared in float64, so the error stays that of a float32. The
greatest magnitude is the maximum over the parts, counts add up, and shares of zeros are averaged
with the parts' numbers of elements as weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch.series import STAT_SPECS, Join
from runwatch_hooks.statistics.totals import PARAM_NORM, STATS, UPDATE_RATIO
from runwatch_hooks.step.row import Sharing

Stats = NDArray[np.float32]


class PartRow(msgspec.Struct, frozen=True, array_like=True):
    """One step's stats of the parts on a rank."""

    segment: int
    step: int
    stats: bytes
    """(S, T) float32, little endian."""


class Columns(msgspec.Struct, frozen=True, array_like=True):
    """The layers of a rank's part rows, from now on."""

    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    """Number of elements of each on the rank."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank's part of a step."""

    columns: Columns
    stats: Stats
    """(S, T) of its columns."""


def part_of(columns: Columns, row: PartRow) -> Part:
    """The decoded part. Raises ValueError if its length does not match the columns."""
    values = np.frombuffer(row.stats, "<f4").reshape(len(STATS), len(columns.layers))
    return Part(columns, values)


class Joining:
    """Joins the parts of each step. Remembers the norms of parameters, which are not read at every
    step, to compute update ratios."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._norms = np.empty(0)

    def join(
        self, layout: Layout, sharing: Sharing, own: Stats, others: Mapping[int, Part]
    ) -> Stats:
        """The stats (S, L) of whole tensors, from rank 0's own (S, L) and the other ranks' parts.

        A stat with a missing part is 'not recorded', unless one of the other parts is NaN or
        infinite: then the whole is as well.
        """
        parts_CSL, sizes_CL, wanted_CL = _stacked(layout, sharing, own, others)
        joined = np.full(own.shape, ABSENT_32, np.float32)
        with np.errstate(all="ignore"):
            for stat, name in enumerate(STATS):
                values_CL = parts_CSL[:, stat]
                recorded_CL = ~is_absent(np.ascontiguousarray(values_CL)) & wanted_CL
                broken_L = (recorded_CL & ~np.isfinite(values_CL)).any(axis=0)
                known_L = broken_L | (
                    (recorded_CL == wanted_CL).all(axis=0) & wanted_CL.any(axis=0)
                )
                join = STAT_SPECS[name].join
                whole_L = _whole(join, np.where(recorded_CL, values_CL, 0).astype(float), sizes_CL)
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
    """(C, S, L) stats of C ranks, (C, L) sizes of their parts, and (C, L) whether each is needed.

    An empty part is not needed: of five rows on four ranks, FSDP gives the last rank none.
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
    join: Join | None, values_CL: NDArray[np.float64], sizes_CL: NDArray[np.float64]
) -> NDArray[np.float64]:
    if join is Join.MAX:
        return np.asarray(values_CL.max(axis=0))
    if join is Join.SUM:
        return np.asarray(values_CL.sum(axis=0))
    if join is Join.MEAN:
        return np.asarray((values_CL * sizes_CL).sum(axis=0) / sizes_CL.sum(axis=0))
    return np.asarray(np.sqrt(np.square(values_CL).sum(axis=0)))
