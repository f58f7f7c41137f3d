"""Rows whose last numbers are still on the device: completed once they arrive, and handed on."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from runwatch.layouts import Layout
from runwatch.nonfinite import ABSENT_32
from runwatch.omissions import Omission, Why, some_of
from runwatch_hooks.detail import Closeup
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import EVERYTHING, Sampled
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import StoreLostError, Team
from runwatch_hooks.ranks.follower import Follower
from runwatch_hooks.ranks.leader import Leader
from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.replicas import ReplicaSampler
from runwatch_hooks.ranks.standing import Drift, Standing
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.statistics.readback import Readback, Ticket
from runwatch_hooks.statistics.totals import STATS, UPDATE_RATIO, RunTotals, over_parts
from runwatch_hooks.step.numbers import Number
from runwatch_hooks.step.own_time import Spans
from runwatch_hooks.step.row import Jumps, LossSpacing, Row, Sharing
from runwatch_hooks.step.step_reading import Reading

_ROOM_FOR_NUMBERS = 64
"""Spare places in a readback buffer, for metrics that the first step did not have on the device:
a loss, a loss scale, the user's own."""

_ASKED_EVERY_S = 0.001


_Slots = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The values of an open row that come from one device."""

    ticket: Ticket
    slots: _Slots
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _OpenRow:
    step: int
    segment: int
    at: float
    metrics: dict[str, float]
    layout: Layout | None
    stats: NDArray[np.float32]
    """(S, T)"""
    parts: tuple[_Part, ...]
    is_whole: bool
    """Whether no part of it was lost, so that its totals are those of all layers."""
    sampled: Sampled
    sharing: Sharing | None
    at_rest: tuple[int, ...]
    closeup: Closeup | None
    own_time: Spans | None
    is_logged: bool

    def is_there(self) -> bool:
        """Whether all its numbers have arrived."""
        pieces = (*(part.ticket for part in self.parts), self.closeup, self.own_time)
        return all(one.is_there() for one in pieces if one is not None)


def _leave_out_at_rest(stats: NDArray[np.float32], slots: list[int]) -> None:
    """Mark the update ratio of these layers as not recorded where it is 0, if other layers moved.
    The optimizer was not asked to update them; a 0 would look like a layer that is stuck."""
    updates = stats[UPDATE_RATIO]
    if (updates > 0.0).any():
        still = np.zeros(len(updates), bool)
        still[slots] = True
        updates[still & (updates == 0.0)] = ABSENT_32


class RowAssembly:
    """Open rows, oldest first. On a CPU a row is complete at once, on an accelerator one to three
    steps later."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._open: deque[_OpenRow] = deque()
        self._readbacks: dict[tuple[torch.device, bool], Readback] = {}
        """By device, and whether stats are among the numbers. Rows without, as of what is logged,
        would otherwise take the room of the steps."""
        self._jumps = Jumps()
        self._loss_spacing = LossSpacing()
        self._totals = RunTotals()
        self.num_lost = 0
        """Rows sent without their numbers from a device, because the ring of buffers was full; and
        rows given up at the end of the run, because their numbers had not arrived."""

    def add(
        self,
        step: int,
        segment: int,
        at: float,
        numbers: Mapping[str, Number],
        reading: Reading,
        closeup: Closeup | None = None,
        own_time: Spans | None = None,
        *,
        is_logged: bool = False,
    ) -> None:
        """Open the row of a step, or of what was logged for one. The rows that `closeup` makes
        follow it."""
        layout = reading.layout
        stats = np.full((len(STATS), len(layout.layers) if layout else 0), ABSENT_32, np.float32)
        distant: dict[torch.device, tuple[_Slots, Tensor | None]] = {}
        for slots, tensor in reading.stats.items():
            if tensor.device.type != "cpu":
                distant[tensor.device] = slots, tensor
            elif len(slots) == stats.shape[1]:  # all layers, in order
                stats[:] = tensor.numpy()
            else:
                stats[:, slots] = tensor.numpy()
        parts = self._send(distant, {k: v for k, v in numbers.items() if isinstance(v, Tensor)})
        sent = tuple(part for part in parts if part is not None)
        is_whole = len(sent) == len(parts)
        self.num_lost += not is_whole
        metrics = {k: float(v) for k, v in numbers.items() if not isinstance(v, Tensor)}
        self._open.append(
            _OpenRow(
                step=step,
                segment=segment,
                at=at,
                metrics=metrics,
                layout=layout,
                stats=stats,
                parts=sent,
                is_whole=is_whole,
                sampled=reading.sampled or EVERYTHING,
                sharing=reading.sharing,
                at_rest=reading.at_rest,
                closeup=closeup,
                own_time=own_time,
                is_logged=is_logged,
            )
        )

    def finished(self) -> list[Row]:
        """Take the oldest rows whose numbers have all arrived, in order."""
        rows: list[Row] = []
        while self._open and self._open[0].is_there():
            row = self._open.popleft()
            rows.append(self._finish(row))
            if row.closeup is not None:
                with self._faults.guard("detail"):  # or a fault would cost the steps' own rows
                    rows += row.closeup.rows(row.step, row.segment, row.at)
        return rows

    def wait(self, timeout_s: float) -> bool:
        """At the end of a run: wait until every number has arrived; False after `timeout_s`. The
        device is polled, because a wait for one that hangs would never return."""
        give_up_at = time.monotonic() + timeout_s
        while not all(row.is_there() for row in self._open):
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_ASKED_EVERY_S)  # host sync: the run is over
        return True

    def drop_open(self) -> int:
        """Give up the rows whose numbers have not arrived; returns how many."""
        num_open = len(self._open)
        self._open.clear()
        self.num_lost += num_open
        return num_open

    def _send(
        self,
        distant: dict[torch.device, tuple[_Slots, Tensor | None]],
        numbers: Mapping[str, Tensor],
    ) -> list[_Part | None]:
        """Start copying what is on each device; None for one whose ring of buffers is full."""
        for tensor in numbers.values():
            distant.setdefault(tensor.device, ((), None))
        parts: list[_Part | None] = []
        for device, (slots, stats) in distant.items():
            mine = {name: one for name, one in numbers.items() if one.device == device}
            names = tuple(mine)
            pieces = [] if stats is None else [stats.reshape(-1)]
            values = torch.cat([*pieces, *(mine[name].reshape(1) for name in names)])
            ring = self._readback(device, values.numel(), has_stats=stats is not None)
            ticket = ring.send(values)
            parts.append(None if ticket is None else _Part(ticket, slots, names))
        return parts

    def _readback(self, device: torch.device, num_values: int, *, has_stats: bool) -> Readback:
        found = self._readbacks.get((device, has_stats))
        if found is None or found.num_values < num_values:
            found = Readback(num_values + _ROOM_FOR_NUMBERS, device)
            self._readbacks[device, has_stats] = found
        return found

    def _finish(self, row: _OpenRow) -> Row:
        for part in row.parts:
            values = part.ticket.values()
            num_stats = len(STATS) * len(part.slots)
            row.stats[:, part.slots] = values[:num_stats].reshape(len(STATS), -1)
            numbers = values[num_stats : num_stats + len(part.names)].tolist()
            row.metrics.update(zip(part.names, numbers, strict=True))
        if row.at_rest and row.sharing is None:
            _leave_out_at_rest(row.stats, list(row.at_rest))
        metrics = row.metrics
        self._loss_spacing.note_in(metrics)
        if row.own_time is not None:
            metrics["own_time"] = row.own_time.seconds()
        if "clip_coef" in metrics:
            metrics["clipped"] = float(not metrics["clip_coef"] >= 1.0)
        if row.layout is not None and row.is_whole:
            if row.sharing is not None:
                metrics |= over_parts(row.stats)
            elif row.sampled.gradients:
                metrics |= self._totals.over(row.layout, row.stats, weights=row.sampled.weights)
        return Row(
            step=row.step,
            segment=row.segment,
            at=row.at,
            metrics=metrics,
            layout=row.layout,
            stats=None if row.layout is None else row.stats.reshape(-1),
            sharing=row.sharing,
            is_lost=row.layout is not None and not row.is_whole,
            urgent=self._jumps.is_urgent(metrics),
            is_logged=row.is_logged,
        )


log = OwnLog(__name__)

PutRow = Callable[[Row], None]


class Peers(Protocol):
    """This rank's part in the exchange between ranks: `Leader` or `Follower`."""

    standing: Standing

    def start(self) -> None: ...
    def put(self, row: Row) -> None: ...
    def put_fingerprints(self, fingerprints: Sequence[Fingerprint]) -> None: ...
    def take_notices(self) -> list[str]: ...
    def close(self, timeout_s: float) -> None: ...


class RowOutput:
    """One watch's output. Used by the training thread; only `close` waits."""

    def __init__(
        self,
        team: Team,
        faults: Faults,
        put_row: PutRow,
        modules: Mapping[str, nn.Module] | None = None,
    ) -> None:
        """`modules` are those whose parameters are compared between ranks."""
        self._team = team
        self._faults = faults
        self._put_row = put_row
        self._peers: Peers | None = None
        world = team.world
        self._sampler = (
            None if world.is_alone else ReplicaSampler(world.rank, world.world_size, modules)
        )
        self._told: frozenset[int] = frozenset()
        """Keys of the parameters that were reported to differ."""

    def numbers(self) -> dict[str, float]:
        """This rank compared with the others, as far as it is known: `replica_drift` (1 if its
        parameters differ from its replicas', 0 if they are equal), `rank_lag` (seconds per step)
        and `loss_gap` (as a share of the loss), the last two as medians of recent steps."""
        if self._peers is None:
            return {}
        own = self._peers.standing
        drift = math.nan if own.has_drifted is None else float(own.has_drifted)
        known = {"replica_drift": drift, "rank_lag": own.lag_s, "loss_gap": own.loss_gap}
        return {name: value for name, value in known.items() if not math.isnan(value)}

    def open(self) -> None:
        with self._faults.guard("ranks"):
            self._peers = _open_peers(self._team, self._put_row)
            if self._peers is not None:
                self._peers.start()

    def put_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self._peers is not None:
                self._peers.put(row)
            elif row.sharing is not None:  # shards must not be taken for whole layers
                self._put_row(replace(row, layout=None, stats=None, sharing=None))
            else:
                self._put_row(row)

    def take_omissions(self) -> list[Omission]:
        """Which of this rank's parameters differ from its replicas', when there are more of them
        than were reported last."""
        drift = None if self._peers is None else self._peers.standing.drift
        keys = frozenset(() if drift is None else drift.keys)
        told, self._told = self._told, keys
        if drift is None or self._sampler is None or keys <= told:
            return []
        names = [name for key in drift.keys if (name := self._sampler.name_of(key)) is not None]
        return [_differing(names, drift)] if names else []

    def begin_replicas(self, named: Sequence[NamedTensor]) -> None:
        """Before the first step: take fingerprints of the parameters as they are."""
        if self._sampler is not None:
            with self._faults.guard("ranks"):
                self._sampler.begin(named)

    def sample_replicas(self, step: int, named: Sequence[NamedTensor]) -> None:
        """After a step: take fingerprints of some parameters, for the ranks to compare."""
        if self._peers is None or self._sampler is None:
            return
        fingerprints = self._sampler.sample(step, named)
        if fingerprints:
            self._peers.put_fingerprints(fingerprints)

    def take_notices(self) -> list[str]:
        """Messages about other ranks that are not watched, each returned once."""
        return [] if self._peers is None else self._peers.take_notices()

    def close(self, timeout_s: float) -> None:
        """Send the last rows and say goodbye to the other ranks; waits `timeout_s` at most."""
        if self._peers is not None:
            self._peers.close(timeout_s)


def _differing(names: Sequence[str], drift: Drift) -> Omission:
    words = f"these layers of rank {drift.rank} differ from their copies on other ranks"
    omission = Omission.of(
        words,
        names,
        metric="replica_drift",
        why=Why.NOT_REDUCED if drift.is_unreduced else Why.UNKNOWN,
    )
    what = f"{words}: {some_of(names, drift.num_keys)}"
    return msgspec.structs.replace(omission, what=what, num_layers=drift.num_keys)


def _open_peers(team: Team, put_row: PutRow) -> Peers | None:
    world = team.world
    try:
        store = team.open_store("measure")
    except StoreLostError as error:
        log.warning("%s", error)
        return None
    if store is None:
        return None
    if world.is_leader:
        return Leader(store, world.world_size, put_row)
    return Follower(store, world.rank, put_row)
