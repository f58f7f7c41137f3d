"""Sends the spools that ended processes left behind: for `sync`, and for a run that goes on."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from runwatch.codec import split_frame
from runwatch.errors import InvalidInputError
from runwatch.messages import AttemptClose
from runwatch.number_texts import counted
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink.client import (
    Client,
    RefusedError,
    RetryLaterError,
    StaleAttemptError,
    UplinkError,
    UplinkSettings,
)
from runwatch_hooks.uplink.delivery import Delivery
from runwatch_hooks.uplink.link import send_receipt
from runwatch_hooks.uplink.segments import Record, Segments
from runwatch_hooks.uplink.service import Backoff, Service
from runwatch_hooks.uplink.spool import SplitLedger, SpoolFolder, find_spools
from runwatch_hooks.uplink.threads import yield_to_training

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
    anywhere and started again. A spool that was sent completely is removed. Raises UplinkError
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


_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.05
"""Between two frames, so that the current attempt is served first: a frame of one second's steps
takes no longer than this."""


class FormerLives:
    """The spools of one rank's earlier attempts, in the same folder as its own. What cannot be sent
    now stays for the next attempt, or for `runwatch sync`.

    Sends the spools that earlier attempts of a run left behind. A trainer that was killed could not
    send its last steps, and those are the most interesting ones.
    """

    def __init__(self, settings: UplinkSettings, own_spool: Path, rank: int) -> None:
        self._settings = settings
        self._own_spool = own_spool
        self._rank = rank
        self._is_started = False

    def start(self) -> None:
        """Start a thread, if there is something to send. Called once the service has answered."""
        if self._is_started:
            return
        self._is_started = True
        left = self._find()
        if not left:
            return
        thread = threading.Thread(
            target=self._run, args=(left,), name="runwatch-former-lives", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no thread could be started
            log.debug("what earlier lives left stays where it is: %s", error)

    def _find(self) -> list[Path]:
        return [
            spool
            for spool in find_spools(self._own_spool.parent)
            if spool != self._own_spool and spool.name.endswith(f"-{self._rank}")
        ]

    def _run(self, left: Sequence[Path]) -> None:
        yield_to_training()
        client = Client.of(self._settings)
        if client is None:
            return
        try:
            for spool in left:
                _bring_in(SpoolFolder(spool), client)
        except Exception:  # a fault of the hook must not end up in the trainer's output
            log.exception("sending the spools of earlier attempts failed")
        finally:
            client.close()


def _bring_in(folder: SpoolFolder, client: Client) -> None:
    """Send one spool. A failure does not affect the others."""
    try:
        folder.lock()
        tally = bring_in(
            folder,
            client,
            patience=Patience(_PATIENCE_S),
            on_progress=_pause,
        )
    except UplinkError as error:
        log.info("%s stays where it is: %s", folder.path, error)
    except (OSError, msgspec.DecodeError, InvalidInputError) as error:
        log.debug("%s stays where it is: %s", folder.path, error)  # its trainer may still live
    else:
        log.info("%s of an earlier attempt sent", counted(tally.num_steps, "step"))
    finally:
        folder.close()


def _pause(_: Tally) -> None:
    time.sleep(_PAUSE_S)
