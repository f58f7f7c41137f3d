"""The exchange on rank 0: joins the other ranks' parts to its rows, and compares the ranks.

There are no collectives and no waits on the training thread: the other ranks put their parts into
the store, and a row of rank 0 is held here until they have arrived. If one does not arrive in time,
because its rank or the hook there has failed, the row is sent without the layers that needed it,
and rows no longer wait for that rank until it sends something again.
"""

import atexit
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from runwatch.nonfinite import is_absent
from runwatch.series import NORM_METRICS
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.letters import (
    ANSWER_KEY,
    BATCH,
    EXIT_TIMEOUT_S,
    Answer,
    Batch,
    Fingerprint,
    batch_key,
)
from runwatch_hooks.ranks.parts import Columns, Joining, Part, part_of
from runwatch_hooks.ranks.replica_judge import ReplicaJudge
from runwatch_hooks.ranks.standing import Pace, Standing, Standings, pace_of
from runwatch_hooks.ranks.team import RankStore, StoreError
from runwatch_hooks.statistics.totals import GRAD_NORM, STATS, RunTotals
from runwatch_hooks.step.row import Jumps, Row
from runwatch_hooks.uplink.threads import yield_to_training

Place = tuple[int, int]
"""(segment, step)"""

_MAX_BROKEN: Final = 1024


@dataclass(slots=True)
class _Peer:
    """The state of another rank."""

    next_number: int = 0
    columns: Columns | None = None
    is_awaited: bool = True
    has_left: bool = False


class Peers:
    """All ranks but 0, and their parts of rows that are not complete yet. Used by one thread."""

    def __init__(self, store: RankStore, world_size: int) -> None:
        self._store = store
        self._peers = {rank: _Peer() for rank in range(1, world_size)}
        self._parts: dict[Place, dict[int, Part]] = {}
        self._broken: dict[Place, int] = {}
        """(segment, step) -> the lowest rank whose loss was non-finite."""

    @property
    def have_left(self) -> bool:
        """Whether all ranks that are expected to send a last batch have done so."""
        return all(peer.has_left or not peer.is_awaited for peer in self._peers.values())

    def listen(self) -> list[tuple[int, Batch]]:
        """Read all batches that have arrived, and keep their parts. Returns (rank, batch) of each,
        for their other contents. Raises StoreLostError."""
        found: list[tuple[int, Batch]] = []
        for rank, peer in self._peers.items():
            while (letter := self._store.get(batch_key(rank, peer.next_number))) is not None:
                self._store.remove(batch_key(rank, peer.next_number))
                peer.next_number += 1
                batch = BATCH.decode(letter)
                self._take(rank, peer, batch)
                found.append((rank, batch))
        return found

    def parts_at(self, place: Place) -> Mapping[int, Part]:
        """The parts of a row, by rank."""
        return self._parts.get(place, {})

    def broken_at(self, place: Place) -> int | None:
        """The lowest rank that reported a non-finite loss there; None if none did."""
        return self._broken.get(place)

    def missing(self, owners: Iterable[int], place: Place) -> list[int]:
        """Those of the ranks `owners` whose parts of a step may still arrive."""
        there = self._parts.get(place, {})
        waited_for = [rank for rank in sorted(owners) if rank and rank not in there]
        return [
            rank
            for rank in waited_for
            if self._peers[rank].is_awaited and not self._peers[rank].has_left
        ]

    def give_up(self, ranks: Sequence[int]) -> None:
        """Do not wait for these ranks until they send parts again."""
        for rank in ranks:
            self._peers[rank].is_awaited = False

    def forget(self, place: Place) -> None:
        """Drop the parts of this step and of those before it."""
        for old in [one for one in self._parts if one <= place]:
            del self._parts[old]

    def _take(self, rank: int, peer: _Peer, batch: Batch) -> None:
        peer.is_awaited |= bool(batch.rows)  # ranks without parts send batches too
        peer.has_left = batch.is_last
        peer.columns = batch.columns or peer.columns
        if peer.columns is not None:
            for row in batch.rows:
                place = row.segment, row.step
                self._parts.setdefault(place, {})[rank] = part_of(peer.columns, row)
        for place in batch.broken:
            self._broken[place] = min(rank, self._broken.get(place, rank))
        while len(self._broken) > _MAX_BROKEN:
            del self._broken[next(iter(self._broken))]


_MAX_WAITING: Final = 1024
"""Limit for each kind while the store is slow or gone; beyond it the oldest are dropped."""


class Untold:
    """Filled by the training thread, and emptied by the thread that sends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._fingerprints: deque[Fingerprint] = deque(maxlen=_MAX_WAITING)
        self._paces: deque[Pace] = deque(maxlen=_MAX_WAITING)

    def put_row(self, row: Row) -> None:
        """Keep what can be compared with other ranks' rows of the same step."""
        pace = pace_of(row.segment, row.step, row.metrics)
        if pace is not None:
            with self._lock:
                self._paces.append(pace)

    def put_fingerprints(self, fingerprints: Sequence[Fingerprint]) -> None:
        with self._lock:
            self._fingerprints.extend(fingerprints)

    def take_fingerprints(self) -> tuple[Fingerprint, ...]:
        with self._lock:
            taken = tuple(self._fingerprints)
            self._fingerprints.clear()
        return taken

    def take_paces(self) -> tuple[Pace, ...]:
        with self._lock:
            taken = tuple(self._paces)
            self._paces.clear()
        return taken


log = OwnLog(__name__)

_INTERVAL_S: Final = 0.1
_IDLE_INTERVAL_S: Final = 0.5
"""If no row is waiting for parts: fingerprints are not urgent, once the first were compared."""
_FIRST_S: Final = 30.0
"""For how long the first comparison is looked for without pause. It tells of ranks that have never
trained together, and each second of that is lost."""
PATIENCE_S: Final = 10.0
"""How long a row waits for other ranks' parts, by this machine's clock."""
WITNESS_S: Final = 0.5
"""How long a row waits if its gradients are non-finite and its loss is finite. Another rank's loss
may be the cause, since gradients are reduced over all ranks, and that rank should be named."""
"""Rows, beyond which the oldest is sent as it is."""
_STANDING_EVERY_S: Final = 1.0
"""Minimum time between two answers, unless the set of drifted ranks has changed."""


class Leader:
    """Runs a thread from `start` on. Of the methods for the training thread, only `close` waits."""

    def __init__(
        self,
        store: RankStore,
        world_size: int,
        put_row: Callable[[Row], None],
        *,
        patience_s: float = PATIENCE_S,
        witness_s: float = WITNESS_S,
    ) -> None:
        self._store = store
        self._put_row = put_row
        self._patience_s = patience_s
        self._witness_s = witness_s
        self._peers = Peers(store, world_size)
        self._rows: deque[tuple[Row, float]] = deque()
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._wakeup = threading.Event()
        self._joining, self._totals, self._jumps = Joining(), RunTotals(), Jumps()
        self._judge = ReplicaJudge()
        self._began_at = math.inf
        self._standings = Standings(world_size)
        self._untold = Untold()
        self._answer = Answer()
        self._answered_at = 0.0
        self._notices: list[str] = []
        self._close_by: float | None = None
        self._is_lost = False
        self.standing = Standing()
        """How this rank compares with the others."""
        self._thread = threading.Thread(target=self._run, name="runwatch-ranks", daemon=True)

    def start(self) -> None:
        self._began_at = time.monotonic()
        self._thread.start()
        atexit.register(self.close, EXIT_TIMEOUT_S)  # while the store can still be used

    def put(self, row: Row) -> None:
        """Send a row to the service, in order; one with shards once all parts have arrived."""
        self._untold.put_row(row)
        with self._lock:
            if row.sharing is None and not self._rows and not _needs_witness(row):
                self._put_row(row)
                return
            self._rows.append((row, time.monotonic()))
        if row.urgent:
            self._wakeup.set()

    def put_fingerprints(self, fingerprints: Sequence[Fingerprint]) -> None:
        self._untold.put_fingerprints(fingerprints)

    def take_notices(self) -> list[str]:
        """Messages about what is no longer watched, each returned once."""
        with self._lock:
            notices, self._notices = self._notices, []
        return notices

    def close(self, timeout_s: float) -> None:
        """Wait for the last parts, and for the other ranks' last batches: if this process hosts the
        store, it must not exit before them."""
        atexit.unregister(self.close)
        self._close_by = time.monotonic() + timeout_s
        self._wakeup.set()
        self._thread.join(timeout_s + 1.0)

    def _run(self) -> None:
        yield_to_training()
        try:
            while not self._is_done():
                self._wakeup.wait(self._pause_s())
                self._wakeup.clear()
                self._turn()
        except Exception:  # a fault of the hook must not keep rows back
            log.exception(
                "the exchange between ranks failed: rows are sent without other ranks' parts"
            )
            self._is_lost = True
        self._emit(time.monotonic(), is_last=True)
        while self._close_by is None:  # without peers, rows are sent as they are
            self._wakeup.wait(_IDLE_INTERVAL_S)
            self._emit(time.monotonic(), is_last=True)

    def _pause_s(self) -> float:
        is_new = not self._judge.has_compared and time.monotonic() - self._began_at < _FIRST_S
        return _INTERVAL_S if self._rows or is_new else _IDLE_INTERVAL_S

    def _turn(self) -> None:
        try:
            self._compare(self._peers.listen())
        except StoreError as error:
            log.warning("the other ranks' parts cannot be received any more: %s", error)
            self._note("the ranks' store is gone: sharded layers are not measured any more")
            self._is_lost = True
        self._emit(time.monotonic())

    def _is_done(self) -> bool:
        if self._is_lost:
            return True
        if self._close_by is None:
            return False
        is_all_said = self._peers.have_left and not self._rows
        return is_all_said or time.monotonic() >= self._close_by

    def _compare(self, theirs: Sequence[tuple[int, Batch]]) -> None:
        own = Batch(fingerprints=self._untold.take_fingerprints(), paces=self._untold.take_paces())
        for rank, batch in (*theirs, (0, own)):
            for fingerprint in batch.fingerprints:
                self._note(self._judge.take(rank, fingerprint))
            for pace in batch.paces:
                self._standings.take(rank, pace)
        answer, now = self._answer_now(), time.monotonic()
        is_due = now - self._answered_at >= _STANDING_EVERY_S
        if answer.drifted != self._answer.drifted or (is_due and answer != self._answer):
            self._answer, self._answered_at = answer, now
            self._store.put(ANSWER_KEY, msgspec.msgpack.encode(answer))
            self.standing = answer.standing_of(0)

    def _answer_now(self) -> Answer:
        # Own times are compared between replicas only: pipeline stages differ by design.
        are_replicas = self._judge.has_compared
        return Answer(
            self._judge.drifted if are_replicas else None,
            self._standings.lags_s().astype("<f4").tobytes() if are_replicas else b"",
            self._standings.loss_gaps().astype("<f4").tobytes(),
        )

    def _emit(self, now: float, *, is_last: bool = False) -> None:
        """Send the rows that are complete, in order, and those that have waited too long."""
        while self._rows:
            row, since = self._rows[0]
            place = row.segment, row.step
            missing = self._missing(row, place)
            is_over = is_last or now - since > self._patience_s or len(self._rows) > _MAX_WAITING
            needs_witness = _needs_witness(row) and self._peers.broken_at(place) is None
            if not is_over and (missing or (needs_witness and now - since <= self._witness_s)):
                return
            if missing and not is_last:
                self._give_up(missing, row.step)
            whole = self._with_witness(self._joined(row, self._peers.parts_at(place)), place)
            self._peers.forget(place)
            with self._lock:
                self._rows.popleft()
                self._put_row(whole)

    def _missing(self, row: Row, place: Place) -> list[int]:
        if row.sharing is None:
            return []
        return self._peers.missing({rank for ranks in row.sharing.owners for rank in ranks}, place)

    def _give_up(self, ranks: Sequence[int], step: int) -> None:
        self._peers.give_up(ranks)
        names = ", ".join(map(str, ranks))
        self._note(f"no parts came from rank {names} for step {step}: its layers are not measured")

    def _joined(self, row: Row, parts: Mapping[int, Part]) -> Row:
        if row.sharing is None or row.layout is None or row.stats is None:
            return row
        own = row.stats.reshape(len(STATS), -1)
        stats = self._joining.join(row.layout, row.sharing, own, parts)
        metrics = {**row.metrics, **self._totals.over(row.layout, stats)}
        if (is_absent(stats[GRAD_NORM]) & ~is_absent(own[GRAD_NORM])).any():
            # A norm without all parts would be too small; a non-finite one is right anyway.
            for name in NORM_METRICS:
                if math.isfinite(metrics.get(name, math.nan)):
                    del metrics[name]
        return replace(
            row,
            metrics=metrics,
            stats=stats.reshape(-1),
            sharing=None,
            urgent=row.urgent or self._jumps.is_urgent(metrics),
        )

    def _with_witness(self, row: Row, place: Place) -> Row:
        """The row, with the rank whose loss was non-finite if the gradients are."""
        witness = self._peers.broken_at(place)
        if witness is None or not _needs_witness(row):
            return row
        return replace(row, metrics={**row.metrics, "loss_broken_on": float(witness)})

    def _note(self, notice: str | None) -> None:
        if notice is not None:
            with self._lock:
                self._notices.append(notice)


def _needs_witness(row: Row) -> bool:
    """Whether its gradients are non-finite although its loss is finite."""
    num_nonfinite = row.metrics.get("nonfinite", row.metrics.get("local_nonfinite", 0.0))
    return num_nonfinite != 0.0 and math.isfinite(row.metrics.get("loss", 0.0))
