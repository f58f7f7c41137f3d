"""The exchange with the service during a run: receipts, heartbeats and records, in that order."""

import logging
import time
from collections.abc import Callable
from typing import Final

from runwatch.commands import Command, Receipt
from runwatch.messages import AttemptClose, Heartbeat
from runwatch.vocabulary import Phase
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink.client import RefusedError, StaleAttemptError
from runwatch_hooks.uplink.command_inbox import CommandBox
from runwatch_hooks.uplink.delivery import Delivery
from runwatch_hooks.uplink.recorder import ReceiptBox, Recorder
from runwatch_hooks.uplink.service import UNENCODABLE, Service, ServiceClock
from runwatch_hooks.uplink.stalls import Progress

log = OwnLog(__name__)

_ANEW: Final = (
    "the steps count from 0 again, and replace those that earlier attempts "
    "of this run trained; if the training continues, give its step: attach(..., next_step=...)"
)


class Link:
    """Methods raise UplinkError; what was not sent is sent the next time."""

    def __init__(
        self,
        service: Service,
        delivery: Delivery,
        recorder: Recorder,
        receipts: ReceiptBox,
        box: CommandBox,
        clock: ServiceClock,
        *,
        rank: int,
        heartbeat_s: float,
        progress: Callable[[], Progress],
    ) -> None:
        self._service = service
        self._delivery = delivery
        self._recorder = recorder
        self._receipts = receipts
        self._box = box
        self._clock = clock
        self._rank = rank
        self._heartbeat_s = heartbeat_s
        self._progress = progress
        self._beat_at = 0.0
        self._phase: Phase | None = None
        """The phase last sent; None before the first heartbeat."""

    @property
    def attempt(self) -> int | None:
        return self._delivery.attempt

    @property
    def max_frame_bytes(self) -> int:
        return self._delivery.max_frame_bytes

    def talk(self, until: float) -> None:
        """Send what is due; records only until `until`, a time of the monotonic clock."""
        is_known = self._delivery.attempt is not None
        attempt = self._delivery.open()
        if not is_known and obeys(self._rank) and self._delivery.begins_anew:
            log.warning(_ANEW)
        self._send_receipts()
        self._beat(attempt)
        while (record := self._recorder.head()) is not None:
            try:
                self.offer(self._delivery.deliver(record))
                self._recorder.acknowledge(record)
                self._recorder.tell_unwatched(self._delivery.take_notices(), record)
            except StaleAttemptError:
                raise
            except RefusedError as error:
                log.seldom(logging.WARNING, "frame %d is set aside: %s", record.seq, error)
                self._recorder.set_aside(record)
            if time.monotonic() >= until:
                return

    def offer(self, commands: tuple[Command, ...]) -> int:
        """Take the commands from a reply; returns how many are new."""
        attempt = self._delivery.attempt
        if not commands or attempt is None or not obeys(self._rank):
            return 0
        return self._box.offer(
            commands,
            attempt=attempt,
            secret=self._delivery.secret,
            service_time=self._clock.now(),
            next_step=self._progress().next_step,
        )

    def close(self, closing: AttemptClose) -> None:
        self._delivery.close(closing)

    def _send_receipts(self) -> None:
        for receipt in self._receipts.waiting():
            send_receipt(self._service, receipt)
            self._receipts.delivered(receipt)

    def _beat(self, attempt: int) -> None:
        """Send a heartbeat if it is due, or at once if the phase has changed, because the phase
        decides when the service alerts on missing steps."""
        progress, now = self._progress(), time.monotonic()
        if progress.phase == self._phase and now - self._beat_at < self._heartbeat_s:
            return
        sent_at = self._clock.running()
        reply = self._delivery.beat(
            Heartbeat(
                attempt=attempt,
                rank=self._rank,
                last_step=progress.last_step,
                step_age_s=max(now - progress.since, 0.0),
                phase=progress.phase,
                lr_scale=progress.lr_scale,
                dropped_rows=self._recorder.ledger.num_rows,
                spooled_frames=self._recorder.num_pending,
            )
        )
        self._beat_at, self._phase = now, progress.phase
        if reply is None:
            return
        received_at = self._clock.running()
        self._clock.observe(
            service_time=reply.server_time, sent_at=sent_at, received_at=received_at
        )
        if (ahead_s := self._clock.take_error()) is not None:
            self._recorder.tell_clock(ahead_s, progress.next_step)
        self.offer(reply.commands)


def obeys(rank: int) -> bool:
    """Whether a rank receives commands from the service. Only rank 0 does; it passes them on, so
    that all ranks carry them out at one step."""
    return rank == 0


def send_receipt(service: Service, receipt: Receipt) -> None:
    """Send a receipt. One that the service refuses is logged and dropped."""
    try:
        service.send_receipt(receipt)
    except RefusedError as error:
        log.seldom(logging.WARNING, "receipt of command %s: %s", receipt.command_id, error)
    except UNENCODABLE as error:
        log.seldom(
            logging.WARNING, "receipt of command %s cannot be sent: %s", receipt.command_id, error
        )
