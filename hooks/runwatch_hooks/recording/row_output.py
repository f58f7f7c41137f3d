"""Hands finished rows on: to the channel or, with several ranks, first to the exchange of ranks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec
from torch import nn

from runwatch.omissions import Omission, Why, some_of
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import StoreLostError, Team
from runwatch_hooks.ranks.follower import Follower
from runwatch_hooks.ranks.leader import Leader
from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.replicas import ReplicaSampler
from runwatch_hooks.ranks.standing import Drift, Standing
from runwatch_hooks.rows.row import Row
from runwatch_hooks.statistics.layer_names import NamedTensor

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
