"""Sends the spool of an ended process to the service, with as many retries as it takes."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import msgspec

from runwatch.codec import split_frame
from runwatch.errors import InvalidInputError
from runwatch.messages import AttemptClose
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.backoff import Backoff
from runwatch_hooks.transport.client import Client
from runwatch_hooks.transport.delivery import Delivery
from runwatch_hooks.transport.errors import RefusedError, RetryLaterError, StaleAttemptError
from runwatch_hooks.transport.link import send_receipt
from runwatch_hooks.transport.records import Record
from runwatch_hooks.transport.segments import Segments
from runwatch_hooks.transport.service import Service
from runwatch_hooks.transport.splits import SplitLedger
from runwatch_hooks.transport.spool_folder import SpoolFolder

log = OwnLog(__name__)

_Answer = TypeVar("_Answer")

_NO_WORD: Final = "the process ended without a word"


@dataclass(slots=True)
class Tally:
    """What was sent from one spool so far."""

    num_frames: int = 0
    num_steps: int = 0
    last_step: int | None = None
    num_refused: int = 0
    """Frames that the service refused; kept as .bad files in the spool."""
    num_damaged_bytes: int = 0
    num_damaged_files: int = 0
    """Segment files with damage; kept as .seg.bad files in the spool."""
    num_bytes_left: int = 0

    @property
    def is_whole(self) -> bool:
        return not (self.num_refused or self.num_damaged_bytes or self.num_damaged_files)


@dataclass(slots=True)
class Patience:
    """Retries with pauses, until a request has failed for `limit_s`."""

    limit_s: float
    _backoff: Backoff = field(default_factory=Backoff)

    def persist(self, ask: Callable[[], _Answer]) -> _Answer:
        """Call `ask` until it succeeds. Raises the last RetryLaterError when the time is over."""
        give_up_at = time.monotonic() + self.limit_s
        while True:
            try:
                answer = ask()
            except RetryLaterError as error:
                pause_s = self._backoff.failed(random.random(), error.retry_after_s)
                if time.monotonic() + pause_s > give_up_at:
                    raise
                time.sleep(pause_s)
            else:
                self._backoff.succeeded()
                return answer


def bring_in(
    folder: SpoolFolder,
    client: Client,
    *,
    patience: Patience,
    on_progress: Callable[[Tally], None],
) -> Tally:
    """Send a locked folder's records in order, then its receipts, then how the attempt ended.

    Progress is marked on disk and the service recognises repetitions, so this can be interrupted
    anywhere and started again. A spool that was sent completely is removed. Raises TransportError
    if the service does not answer or refuses to go on.
    """
    meta = folder.read_meta()
    service = Service(client, meta.run.run_id, meta.attempt.token)
    delivery = Delivery(
        service,
        meta.run,
        msgspec.structs.replace(meta.attempt, live=False),
        meta.layouts,
        SplitLedger(folder.read_splits(), folder.write_splits),
        late=True,
    )
    tally = Tally(num_refused=len(folder.refused_files()))
    _send_records(folder, delivery, tally, patience, on_progress)
    for receipt in folder.read_receipts():
        patience.persist(partial(send_receipt, service, receipt))
    folder.write_receipts([])
    closing = meta.closing or AttemptClose("failed", tally.last_step, _NO_WORD)
    if meta.closing is not None or meta.rank == 0:  # only rank 0 ends the attempt
        patience.persist(lambda: delivery.close(closing))
    tally.num_damaged_files = len(folder.damaged_files())
    if not folder.bad_files():
        folder.remove()
    return tally


def _send_records(
    folder: SpoolFolder,
    delivery: Delivery,
    tally: Tally,
    patience: Patience,
    on_progress: Callable[[Tally], None],
) -> None:
    segments = Segments(folder.path, segment_bytes=0)
    delivery.resume(segments.acked_seq)
    try:
        while (record := segments.head()) is not None:
            if _is_delivered(record, delivery, patience):
                _count(tally, record)
            else:
                folder.keep_refused(record.seq, record.payload)
                tally.num_refused += 1
            segments.acknowledge(record.seq)
            tally.num_bytes_left = segments.num_bytes
            on_progress(tally)
    finally:
        tally.num_damaged_bytes = segments.num_damaged_bytes
        segments.close()


def _is_delivered(record: Record, delivery: Delivery, patience: Patience) -> bool:
    try:
        patience.persist(lambda: delivery.deliver(record))
    except StaleAttemptError:  # an old service that does not accept late frames: keep them
        raise
    except (RefusedError, InvalidInputError) as error:
        log.seldom(logging.WARNING, "frame %d is set aside: %s", record.seq, error)
        return False
    return True


def _count(tally: Tally, record: Record) -> None:
    header, _ = split_frame(record.payload)
    tally.num_frames += 1
    tally.num_steps += header.num_steps
    if header.num_steps:
        tally.last_step = header.first_step + header.num_steps - 1
