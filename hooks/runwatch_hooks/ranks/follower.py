"""The exchange on ranks other than 0: sends this rank's parts of tensors to rank 0."""

import atexit
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.leader import Untold
from runwatch_hooks.ranks.letters import (
    ANSWER,
    ANSWER_KEY,
    EXIT_TIMEOUT_S,
    Batch,
    Fingerprint,
    batch_key,
)
from runwatch_hooks.ranks.parts import Columns, PartRow
from runwatch_hooks.ranks.standing import Pace, Standing
from runwatch_hooks.ranks.team import RankStore, StoreError
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink.threads import yield_to_training

log = OwnLog(__name__)

INTERVAL_S: Final = 0.1
_ASK_EVERY_S: Final = 1.0
_FIRST_S: Final = 30.0
"""For how long the first answer about this rank's copies is asked for at every turn."""
_PACE_EVERY_S: Final = 0.5
"""Paces are not urgent: they are collected, or sent with other contents."""
_MAX_WAITING: Final = 1024
"""Part rows kept while the store is slow; beyond it the oldest are dropped."""
MAX_UNREAD: Final = 64
"""Batches that rank 0 has not read, beyond which none but the last is added: the store keeps them
in memory."""


class Follower:
    """Runs a thread from `start` on. Of the methods for the training thread, only `close` waits."""

    def __init__(self, store: RankStore, rank: int, put_row: Callable[[Row], None]) -> None:
        self._store = store
        self._rank = rank
        self._put_row = put_row
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._wakeup = threading.Event()
        self._rows: list[tuple[Columns, PartRow]] = []
        self._untold = Untold()
        self._broken: list[tuple[int, int]] = []
        self._paced_at = 0.0
        self._columns: Columns | None = None
        self._sent_columns: Columns | None = None
        self._number = 0
        self._asked_at = 0.0
        self._began_at = math.inf
        self._is_closing = False
        self.num_lost = 0
        """Part rows that rank 0 did not get."""
        self.standing = Standing()
        """How this rank compares with the others."""
        self._thread = threading.Thread(target=self._run, name="runwatch-ranks", daemon=True)

    def start(self) -> None:
        self._began_at = time.monotonic()
        self._thread.start()
        atexit.register(self.close, EXIT_TIMEOUT_S)  # while the store can still be used

    def put(self, row: Row) -> None:
        """Send a row to the service, without layers, and its part of sharded layers to rank 0."""
        if row.sharing is not None and row.layout is not None and row.stats is not None:
            columns = self._columns
            wanted = Columns(row.layout.layer_names, row.sharing.sizes)
            if columns is None or columns != wanted:
                columns = self._columns = wanted
            part = PartRow(row.segment, row.step, row.stats.astype("<f4").tobytes())
            with self._lock:
                self._rows.append((columns, part))
                if len(self._rows) > _MAX_WAITING:
                    del self._rows[0]
                    self.num_lost += 1
            if row.urgent:
                self._wakeup.set()
        if not math.isfinite(row.metrics.get("loss", 0.0)):
            with self._lock:
                self._broken.append((row.segment, row.step))
                del self._broken[:-MAX_UNREAD]
            self._wakeup.set()
        self._untold.put_row(row)
        self._put_row(replace(row, layout=None, stats=None, sharing=None))

    def put_fingerprints(self, fingerprints: Sequence[Fingerprint]) -> None:
        self._untold.put_fingerprints(fingerprints)

    def take_notices(self) -> list[str]:
        return []

    def close(self, timeout_s: float) -> None:
        """Send what is left, marked as this rank's last batch."""
        atexit.unregister(self.close)
        self._is_closing = True
        self._wakeup.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        yield_to_training()
        try:
            while not self._is_closing:
                self._wakeup.wait(INTERVAL_S)
                self._wakeup.clear()
                self._send()
                self._ask()
            self._send(is_last=True)
        except StoreError as error:  # rank 0 has exited or died: nobody would read it
            log.debug("ranks: %s", error)
        except Exception:  # a traceback of the thread must not end up in the trainer's output
            log.exception("the exchange between ranks failed")

    def _send(self, *, is_last: bool = False) -> None:
        with self._lock:
            waiting, self._rows = self._rows, []
            broken, self._broken = self._broken, []
        fingerprints = self._untold.take_fingerprints()
        paces = self._take_paces(is_last or bool(waiting or fingerprints or broken))
        while waiting or fingerprints or broken or paces or is_last:
            columns = waiting[0][0] if waiting else None
            alike = [row for its, row in waiting if its is columns]
            waiting = waiting[len(alike) :]
            is_new = columns is not None and columns is not self._sent_columns
            batch = Batch(
                columns=columns if is_new else None,
                rows=tuple(alike),
                fingerprints=fingerprints,
                broken=tuple(broken),
                is_last=is_last and not waiting,
                paces=paces,
            )
            if self._put(batch) and is_new:
                self._sent_columns = columns
            fingerprints, broken, paces = (), [], ()
            if not waiting:
                return

    def _take_paces(self, is_going: bool) -> tuple[Pace, ...]:
        now = time.monotonic()
        if not is_going and now - self._paced_at < _PACE_EVERY_S:
            return ()
        self._paced_at = now
        return self._untold.take_paces()

    def _put(self, batch: Batch) -> bool:
        """Returns whether rank 0 will get it. The last batch always: rank 0 waits for it."""
        oldest = self._number - MAX_UNREAD
        is_full = oldest >= 0 and self._store.holds(batch_key(self._rank, oldest))
        if is_full and not batch.is_last:
            self.num_lost += len(batch.rows)
            return False
        self._store.put(batch_key(self._rank, self._number), msgspec.msgpack.encode(batch))
        self._number += 1
        return True

    def _ask(self) -> None:
        now = time.monotonic()
        is_new = self.standing.has_drifted is None and now - self._began_at < _FIRST_S
        if not is_new and now - self._asked_at < _ASK_EVERY_S:
            return
        self._asked_at = now
        found = self._store.get(ANSWER_KEY)
        if found is not None:
            self.standing = ANSWER.decode(found).standing_of(self._rank)
