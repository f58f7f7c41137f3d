"""The interface of the uplink for the training thread: it never waits and never raises."""

import numbers
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from runwatch.commands import Command, Receipt
from runwatch.frames import Event
from runwatch.messages import MAX_CONFIG_BYTES, AttemptClose, AttemptOpen, RunOpen
from runwatch.vocabulary import Phase, RunId
from runwatch_hooks.exit_causes import text_of
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink.backlog import FormerLives
from runwatch_hooks.uplink.client import Client, UplinkSettings
from runwatch_hooks.uplink.command_inbox import CommandBox, Inbox
from runwatch_hooks.uplink.delivery import Delivery
from runwatch_hooks.uplink.link import Link, obeys
from runwatch_hooks.uplink.queue import RowQueue
from runwatch_hooks.uplink.recorder import ReceiptBox, Recorder
from runwatch_hooks.uplink.sender import Pace, Sender
from runwatch_hooks.uplink.service import (
    Service,
    ServiceClock,
    sendable,
    sendable_document,
    sendable_event,
    sendable_receipt,
)
from runwatch_hooks.uplink.spool import SplitLedger, SpoolFolder, SpoolMeta, folder_name
from runwatch_hooks.uplink.stalls import ProgressBoard, StallWatch, never
from runwatch_hooks.uplink.threads import Wakeup

log = OwnLog(__name__)

EndStatus = Literal["finished", "failed", "stopped"]


class Uplink:
    """One rank's connection to the service, for one attempt.

    After `start`, every method may be called at every step. Only `close` waits for the network, the
    disk or other threads; no method raises. In a forked child all of them do nothing, because the
    threads exist only in the parent.
    """

    def __init__(
        self,
        settings: UplinkSettings,
        run: RunOpen,
        attempt: AttemptOpen,
        rank: int,
        is_evaluating: Callable[[], bool] = never,
    ) -> None:
        """`attempt.token` proves which attempt this is; all ranks have the same. `is_evaluating` is
        called by the sender, see ProgressBoard."""
        self.run_id: RunId = run.run_id
        self.spool_path: Path = settings.spool_dir / run.run_id / folder_name(attempt, rank)
        self._rank = rank
        self._pid = os.getpid()
        self._is_closed = False
        self._progress = ProgressBoard(is_evaluating)
        self._wakeup = Wakeup()
        self._queue = RowQueue(settings.queue_bytes)
        self._receipts = ReceiptBox()
        self._clock = ServiceClock()
        self._commands = CommandBox(self._receipts, run.run_id, rank)
        host = sendable_document(attempt.host)
        attempt = msgspec.structs.replace(attempt, host=host)
        meta = SpoolMeta(run=_plain(run), attempt=attempt, rank=rank)
        self._recorder = Recorder(
            settings, SpoolFolder(self.spool_path), meta, self._queue, self._receipts
        )
        client = Client.of(settings)
        link, inbox = (None, None) if client is None else self._connect(client, settings, meta)
        pace = Pace(
            close_s=settings.send_interval_s,
            calm_s=settings.calm_interval_s,
            now=time.monotonic(),
        )
        former = FormerLives(settings, self.spool_path, rank)
        stalls = StallWatch(
            self._progress.see,
            self.put_event,
            stall_s=settings.stall_s,
        )
        self._sender = Sender(
            self._recorder, client, link, inbox, former, self._wakeup, pace, stalls
        )

    @property
    def num_dropped_rows(self) -> int:
        """Rows lost since the attempt began, for any reason."""
        return self._recorder.ledger.num_rows + self._queue.num_untold_rows

    def service_time(self) -> float:
        """The service's time in Unix seconds, as well as it is known. Commands expire by it."""
        return self._clock.now()

    def start(self) -> None:
        """Start sending. What was queued before is sent too."""
        try:
            self._sender.start()
        except RuntimeError as error:  # no thread could be started
            self._is_closed = True
            log.warning("the run is not watched: %s", error)

    def put_row(self, row: Row) -> None:
        """Queue a row. An urgent one is sent at once."""
        if self._is_inert():
            return
        self._queue.put(row)
        if row.urgent or self._queue.is_half_full:
            self._wakeup.ring()

    def close_row(self, step: int, segment: int) -> None:
        """Nothing more is logged for this step, so that its row need not wait."""
        self._queue.close_row(step, segment)

    def put_event(self, event: Event) -> None:
        """Queue an event, to be sent with the rows around it."""
        if not self._is_inert():
            self._queue.put(sendable_event(event))

    def put_receipt(self, receipt: Receipt) -> None:
        """Send a receipt at once, and again until the service has it."""
        if not self._is_inert():
            self._receipts.put(sendable_receipt(receipt))
            self._wakeup.ring()

    def set_progress(self, step: int | None, phase: Phase, lr_scale: float) -> None:
        """Set what heartbeats report: the last step that ended, the phase, the LR scale."""
        self._progress.tell(step, phase, lr_scale)

    def take_commands(self) -> list[Command]:
        """Commands received since the last call: each once, and none that has expired."""
        if self._is_inert():
            return []
        return self._commands.take(
            service_time=self._clock.now(), next_step=self._progress.next_step
        )

    def close(self, status: EndStatus, timeout_s: float = 10.0, *, reason: str = "") -> None:
        """Send what is possible within `timeout_s`. The rest stays in the spool, for `sync`."""
        if self._is_inert():
            return
        self._is_closed = True
        closing = AttemptClose(
            status,
            last_step=self._progress.last_step,
            reason=sendable(reason),
            rank=self._rank,
        )
        self._sender.close(closing, timeout_s)

    def _is_inert(self) -> bool:
        # By the process id, not by `os.register_at_fork`: such a hook cannot be removed, and a lock
        # held by another thread at the fork is never released in the child.
        return self._is_closed or os.getpid() != self._pid

    def _connect(
        self, client: Client, settings: UplinkSettings, meta: SpoolMeta
    ) -> tuple[Link, Inbox | None]:
        service = Service(client, self.run_id, meta.attempt.token)
        splits = SplitLedger({}, self._recorder.write_splits)
        link = Link(
            service,
            Delivery(service, meta.run, meta.attempt, self._recorder.layouts, splits),
            self._recorder,
            self._receipts,
            self._commands,
            self._clock,
            rank=meta.rank,
            heartbeat_s=settings.heartbeat_s,
            progress=self._progress.see,
        )
        if not obeys(meta.rank):
            return link, None
        inbox = Inbox(
            service,
            rank=meta.rank,
            long_poll_s=settings.long_poll_s,
            attempt=lambda: link.attempt,
            offer=link.offer,
        )
        return link, inbox


def _plain(run: RunOpen) -> RunOpen:
    """The run with its configuration as JSON values: a path or a dtype becomes its text.

    If that is not possible the configuration is left out, or the service would refuse the run.
    """
    try:
        config = sendable_document(
            msgspec.to_builtins(run.config, str_keys=True, enc_hook=_plain_value)
        )
        num_bytes = len(msgspec.json.encode(config))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        log.warning("the run's configuration is left out: %s", error)
        return msgspec.structs.replace(run, config={})
    if num_bytes > MAX_CONFIG_BYTES:
        log.warning("the run's configuration is left out: it takes %d bytes", num_bytes)
        return msgspec.structs.replace(run, config={})
    return msgspec.structs.replace(run, config=config)


def _plain_value(value: object) -> object:
    if isinstance(value, numbers.Integral):  # numpy's scalars count as these
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return text_of(value)
