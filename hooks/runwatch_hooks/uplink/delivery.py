"""Delivers records to the service, one at a time. Used by the live sender and by `sync`."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from runwatch.codec import decode_frame, encode_frame, join_frame, split_frame
from runwatch.commands import Command
from runwatch.messages import AttemptClose, AttemptOpen, Heartbeat, HeartbeatReply, RunOpen
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink.client import (
    RefusedError,
    RetryLaterError,
    StaleAttemptError,
    UnknownAttemptError,
    UnknownLayoutError,
)
from runwatch_hooks.uplink.recorder import MAX_FRAME_BYTES
from runwatch_hooks.uplink.segments import Record
from runwatch_hooks.uplink.service import Service
from runwatch_hooks.uplink.spool import SplitLedger

log = OwnLog(__name__)

Layouts = Mapping[str, dict[str, object]]
"""Documents by their hash."""

_TOO_LARGE: Final = 413
_UNPROCESSABLE: Final = 422
_NOT_FOUND: Final = 404
_RUN_ENDED: Final = "run_ended"
_TOO_FAR: Final = "seq_too_far"
_SMALLEST_LIMIT: Final = 2**16


class Delivery:
    """The records of one rank and attempt. Methods raise UplinkError.

    RefusedError means that the record itself is refused. Anything else that is refused may be fixed
    on the service's side, so it is retried later and nothing is discarded. The exception is a
    layout that is invalid or too large: its rows are delivered without their layers.
    """

    def __init__(
        self,
        service: Service,
        run: RunOpen,
        attempt: AttemptOpen,
        layouts: Layouts,
        splits: SplitLedger,
        *,
        late: bool = False,
    ) -> None:
        self._service = service
        self._run = run
        self._attempt = attempt
        self._layouts = layouts
        self._registered: set[str] = set()
        self._refused: set[str] = set()
        """Hashes of layouts that the service refused."""
        self._notices: list[str] = []
        self._splits = splits
        self._late = late
        self._next_seq = 1
        self.attempt: int | None = None
        """The attempt's number, given by the service; None until it answers."""
        self.secret = b""
        """The key with which commands must be signed; empty if the service does not sign."""
        self.max_frame_bytes = MAX_FRAME_BYTES
        """Limit on an uncompressed frame; halved each time that the service, or a proxy in front of
        it, finds one too large."""

    def open(self) -> int:
        """Open run and attempt at the service, once; returns the attempt's number."""
        if self.attempt is None:
            with self._asked_again():
                self._service.open_run(self._run)
                opened = self._service.open_attempt(self._attempt)
            # A secret is kept once there was one. Otherwise, whoever can make the service forget
            # the attempt could switch signatures off.
            self.secret = opened.secret or self.secret
            self.attempt = opened.attempt
            log.info("run %s: attempt %d is open", self._run.run_id, self.attempt)
        return self.attempt

    @property
    def begins_anew(self) -> bool:
        """Whether the attempt counts its steps from 0 in a run that has earlier attempts."""
        return (self.attempt or 0) > 1 and self._attempt.resume_step == 0

    def close(self, closing: AttemptClose) -> None:
        with self._asked_again():
            self._service.close_attempt(self.open(), closing)

    def beat(self, beat: Heartbeat) -> HeartbeatReply | None:
        """Send a heartbeat; None once the run has ended, where none is needed."""
        try:
            with self._asked_again():
                return None if self._late else self._service.heartbeat(beat)
        except StaleAttemptError as error:
            self._come_late(error)
            return None

    def resume(self, acked_seq: int) -> None:
        """Records up to this one were delivered before, or set aside."""
        self._next_seq = self._splits.wire_seq(acked_seq + 1)

    def deliver(self, record: Record) -> tuple[Command, ...]:
        """Send a record; returns once it is stored, with the commands in the replies."""
        attempt = self.open()
        commands: dict[str, Command] = {}
        bodies = self._bodies(record, attempt)
        index = 0
        while index < len(bodies):
            try:
                commands.update((command.id, command) for command in self._send(bodies[index]))
                index += 1
            except RefusedError as error:
                self._adapt(record, index, error)
                bodies = self._bodies(record, attempt)
        self._next_seq = self._splits.wire_seq(record.seq + 1)
        return tuple(commands.values())

    def _adapt(self, record: Record, index: int, error: RefusedError) -> None:
        """Send a record in another form that the service may take, or raise `error` again."""
        if error.code == _TOO_FAR and self._next_seq > 1:
            self._next_seq = 1  # it knows less than it has acknowledged: a copy was restored
        elif error.status == _TOO_LARGE and self._splits.cut(record, index):
            self.max_frame_bytes = max(self.max_frame_bytes // 2, _SMALLEST_LIMIT)
        else:
            raise error

    def take_notices(self) -> list[str]:
        """Messages about rows sent without their layers, each returned once."""
        notices, self._notices = self._notices, []
        return notices

    def _bodies(self, record: Record, attempt: int) -> list[bytes]:
        """The request bodies of a record: one, or several if it was too large. The first says how
        many records before it are lost: they are sent in order, and none is left before it."""
        seq = self._splits.wire_seq(record.seq)
        lost = max(seq - self._next_seq, 0)
        if not self._splits.is_cut(record.seq):
            return [_addressed(record.payload, attempt, seq, lost)]
        pieces = [encode_frame(piece) for piece in self._splits.pieces(record)]
        return [
            _addressed(piece, attempt, seq + index, 0 if index else lost)
            for index, piece in enumerate(pieces)
        ]

    def _send(self, body: bytes) -> tuple[Command, ...]:
        layout_hash = split_frame(body)[0].layout_hash
        self._register(layout_hash)
        if layout_hash in self._refused:
            return self._send_registered(_without_layers(body))
        try:
            return self._send_registered(body)
        except UnknownLayoutError:
            self._registered.discard(layout_hash)
            self._register(layout_hash)
        try:
            return self._send_registered(body)
        except UnknownLayoutError as error:
            raise RetryLaterError(str(error)) from error

    def _send_registered(self, body: bytes) -> tuple[Command, ...]:
        try:
            return self._service.send_frame(body, late=self._late).commands
        except StaleAttemptError as error:
            self._come_late(error)
        except RefusedError as error:
            if _is_forgotten(error):
                raise self._forgotten(error) from error
            raise
        return self._send_registered(body)

    def _come_late(self, error: StaleAttemptError) -> None:
        """Continue in late mode if another rank has ended the run; otherwise raise `error`."""
        if self._late or self._attempt.world_size == 1 or error.code != _RUN_ENDED:
            raise error
        self._late = True

    def _register(self, layout_hash: str) -> None:
        if not layout_hash or layout_hash in self._registered or layout_hash in self._refused:
            return
        document = self._layouts.get(layout_hash)
        if document is not None:  # without it: the service may know it, or refuses the frame
            with self._asked_again():
                try:
                    self._service.put_layout(layout_hash, document)
                except RefusedError as error:
                    if error.status not in (_TOO_LARGE, _UNPROCESSABLE):
                        raise
                    self._do_without(layout_hash, error)
                    return
        self._registered.add(layout_hash)

    def _do_without(self, layout_hash: str, error: RefusedError) -> None:
        """Send rows of this layout without their layers from now on. Asking again would give the
        same answer, and all later records would wait behind it forever."""
        self._refused.add(layout_hash)
        notice = f"the service does not take the run's layers, only its metrics: {error}"
        log.warning("%s", notice)
        if len(self._refused) == 1:
            self._notices.append(notice)

    @contextmanager
    def _asked_again(self) -> Generator[None]:
        try:
            yield
        except StaleAttemptError:
            raise
        except RefusedError as error:
            if _is_forgotten(error):
                raise self._forgotten(error) from error
            raise RetryLaterError(str(error)) from error

    def _forgotten(self, error: RefusedError) -> RetryLaterError:
        """The service no longer knows run or attempt, because an older database was restored: open
        them again."""
        self.attempt = None
        self._next_seq = 1
        self._registered.clear()
        self._refused.clear()
        return RetryLaterError(str(error))


def _is_forgotten(error: RefusedError) -> bool:
    return error.status == _NOT_FOUND or isinstance(error, UnknownAttemptError)


def _without_layers(body: bytes) -> bytes:
    """The frame with its metrics only. Gives the same bytes each time."""
    frame = decode_frame(body)
    stats = np.empty((frame.num_steps, 0), np.float32)
    return encode_frame(replace(frame, layout_hash="", stats=stats))


def _addressed(payload: bytes, attempt: int, seq: int, lost: int) -> bytes:
    header, block = split_frame(payload)
    return join_frame(msgspec.structs.replace(header, attempt=attempt, seq=seq, lost=lost), block)
