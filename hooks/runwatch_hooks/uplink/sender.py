"""The thread that moves rows from the queue to the spool, and from the spool to the service."""

import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from runwatch.messages import AttemptClose
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink.backlog import FormerLives
from runwatch_hooks.uplink.client import (
    Client,
    ForbiddenError,
    RetryLaterError,
    StaleAttemptError,
    UplinkError,
)
from runwatch_hooks.uplink.command_inbox import Inbox
from runwatch_hooks.uplink.link import Link
from runwatch_hooks.uplink.recorder import MAX_FRAME_BYTES, Recorder
from runwatch_hooks.uplink.service import Backoff
from runwatch_hooks.uplink.stalls import StallWatch
from runwatch_hooks.uplink.threads import Wakeup, yield_to_training

log = OwnLog(__name__)

_EVERY_S: Final = 1.0


class StandIn:
    """A thread that looks once a second whether the sender is held up, and records for it then.

    Records what is queued while the sender waits for a service that does not answer. A request may
    take as long as its timeout, and a program may be killed meanwhile: what lies in the queue is
    lost then, and what lies in the spool is not.
    """

    def __init__(self, record: Callable[[], None]) -> None:
        self._record = record
        self._asking_since: float | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-stand-in", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not for signal handlers, which might interrupt one."""
        self._is_over.set()

    @contextmanager
    def asking(self) -> Generator[None]:
        """What the sender does here may take long."""
        self._asking_since = time.monotonic()
        try:
            yield
        finally:
            self._asking_since = None

    def _run(self) -> None:
        yield_to_training()
        while not self._is_over.wait(_EVERY_S):
            since = self._asking_since
            if since is not None and time.monotonic() - since >= _EVERY_S:
                try:
                    self._record()
                except Exception:  # the sender may get on, and records then
                    log.exception("nothing could be recorded for the sender")


_STIR_S: Final = 10.0


class Pace:
    """A short interval while something happens, and a longer one during calm training.

    A frame of ten steps costs the service twice what a frame of one step does, not ten times
    (`benchmarks.frame_cost`), so calm steps are sent in larger frames.
    """

    def __init__(self, *, close_s: float, calm_s: float, now: float) -> None:
        """The first seconds count as eventful: whoever has just started a run is looking at it."""
        self._close_s = close_s
        self._calm_s = max(calm_s, close_s)
        self._stirred_until = now + _STIR_S

    def stir(self, now: float) -> None:
        """Something happened: use the short interval for the next seconds."""
        self._stirred_until = now + _STIR_S

    def interval_s(self, now: float) -> float:
        """Seconds from one frame to the next; `now` is a monotonic clock's time."""
        return self._close_s if now < self._stirred_until else self._calm_s


_OFFLINE_INTERVAL_S: Final = 1.0
"""Without a service nobody waits for the frames, and fewer, larger ones are faster to send
later."""
_FORBIDDEN_PAUSE_S: Final = 60.0
_FORBIDDEN_WARNING_S: Final = 600.0
_PORTION_S: Final = 0.5
"""A backlog is sent in turns of this length, between which the queue is emptied."""

_NOTE_S: Final = 2.0
"""Longest wait of the training thread for the files that say how the attempt ended and what it did
last. It takes milliseconds on a disk that works."""


class Sender:
    """Runs until it is closed, whatever fails. All work on disk and network happens in its thread;
    while that one is held by a service that does not answer, in those that record in its place."""

    def __init__(
        self,
        recorder: Recorder,
        client: Client | None,
        link: Link | None,
        inbox: Inbox | None,
        former: FormerLives,
        wakeup: Wakeup,
        pace: Pace,
        stalls: StallWatch,
    ) -> None:
        """`client` is the link's, to be closed at the end. If both are None, everything stays in
        the spool."""
        self._recorder = recorder
        self._client = client
        self._link = link
        self._inbox = inbox
        self._former = former
        self._wakeup = wakeup
        self._pace = pace
        self._stalls = stalls
        self._backoff = Backoff()
        self._retry_at = 0.0
        self._warn_at = 0.0
        self._closing: AttemptClose | None = None
        self._close_by = 0.0
        self._stand_in = StandIn(self._record)
        self._thread = threading.Thread(target=self._run, name="runwatch-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, closing: AttemptClose, timeout_s: float) -> None:
        """Send what is possible within `timeout_s`; the rest stays in the spool."""
        self._close_by = time.monotonic() + timeout_s
        self._closing = closing
        self._wakeup.ring()
        self._thread.join(timeout_s)
        if self._thread.is_alive():  # held by a service that does not answer, or by the disk
            self._recorder.say_what_is_left()
            self._leave_to_sync(closing)

    def _leave_to_sync(self, closing: AttemptClose) -> None:
        """Write down what the sender did not come to, in a thread that is left alone if the disk
        stands still: the program that trains must end also then."""
        noting = threading.Thread(
            target=self._note_rest, args=(closing,), name="runwatch-end", daemon=True
        )
        try:
            noting.start()
        except RuntimeError:  # the interpreter is shutting down, and starts no thread
            self._note_rest(closing)
        else:
            noting.join(_NOTE_S)

    def _note_rest(self, closing: AttemptClose) -> None:
        """How the attempt ended, and the rows of the time in which the sender was held."""
        try:
            self._recorder.note_end(closing)
            self._recorder.open()
            self._record(is_last=True)
        except Exception:  # at the interpreter's end it is the training thread that runs this
            log.exception("what was left could not be written down")

    def _run(self) -> None:
        yield_to_training()
        if self._link is not None:
            self._stand_in.start()
        while self._closing is None:
            try:
                self._turn()
            except Exception:  # the thread must survive a fault, or the run is no longer watched
                log.exception("the sender failed")
                self._pause(self._backoff.failed(random.random()))
            if self._wakeup.wait(self._interval_s()):
                self._pace.stir(time.monotonic())
        try:
            self._finish(self._closing)
        except Exception:  # a traceback of the thread must not follow the trainer's last lines
            log.exception("the sender failed while closing")
        self._stand_in.stop()
        if self._client is not None:
            self._client.close()

    def _turn(self) -> None:
        self._recorder.open()
        self._stalls.look()
        self._record()
        link = self._link
        if link is None or time.monotonic() < self._retry_at:
            return
        self._talk(link, until=time.monotonic() + _PORTION_S)
        fell_silent = self._link is None
        if link.attempt is None or fell_silent:
            return
        if self._inbox is not None:
            self._inbox.start()
        self._former.start()

    def _record(self, *, is_last: bool = False) -> None:
        link = self._link  # read once: another thread may drop it
        limit = MAX_FRAME_BYTES if link is None else link.max_frame_bytes
        self._recorder.record(now=time.time(), max_frame_bytes=limit, is_last=is_last)

    def _talk(self, link: Link, until: float) -> bool:
        """Talk to the service until `until`; returns whether every request succeeded."""
        try:
            with self._stand_in.asking():
                link.talk(until)
        except StaleAttemptError as error:
            self._fall_silent(error)
        except ForbiddenError as error:
            self._pause(_FORBIDDEN_PAUSE_S)
            self._warn_of_key(error)
        except RetryLaterError as error:
            self._pause(self._backoff.failed(random.random(), error.retry_after_s), error)
        else:
            if self._backoff.num_failures:
                log.info("delivered again")
            self._backoff.succeeded()
            return True
        return False

    def _interval_s(self) -> float:
        now = time.monotonic()
        interval_s = self._pace.interval_s(now)
        if self._link is None:
            return max(interval_s, _OFFLINE_INTERVAL_S)
        if self._backoff.num_failures:
            return max(interval_s, min(self._retry_at - now, _OFFLINE_INTERVAL_S))
        return 0.0 if self._recorder.head() is not None else interval_s

    def _pause(self, pause_s: float, error: UplinkError | None = None) -> None:
        self._retry_at = time.monotonic() + pause_s
        if error is not None and self._backoff.num_failures == 1:
            log.warning("not delivered, and kept for later: %s", error)

    def _warn_of_key(self, error: UplinkError) -> None:
        self._backoff.num_failures += 1
        if time.monotonic() >= self._warn_at:
            log.warning("the API key is refused; everything is kept for later: %s", error)
            self._warn_at = time.monotonic() + _FORBIDDEN_WARNING_S

    def _fall_silent(self, error: UplinkError) -> None:
        """A newer attempt has begun, or the run has ended: only write to the spool from now on."""
        log.warning("this attempt is over; everything is only spooled: %s", error)
        self._link = None
        if self._inbox is not None:
            self._inbox.stop()

    def _finish(self, closing: AttemptClose) -> None:
        if self._inbox is not None:
            self._inbox.stop()
        self._recorder.open()
        self._record(is_last=True)
        self._recorder.note_end(closing)
        is_delivered = self._link is not None and self._deliver_rest(self._link, closing)
        self._recorder.close(is_delivered=is_delivered)

    def _deliver_rest(self, link: Link, closing: AttemptClose) -> bool:
        """Send the rest and the end of the attempt; returns whether everything arrived.

        A service that has answered before may be restarting, and is asked until the time is over.
        One that never did is asked once, so that the process can exit.
        """
        while True:
            if self._talk(link, until=self._close_by):
                return self._say_goodbye(link, closing) and self._recorder.head() is None
            answered_before = self._link is not None and link.attempt is not None
            if not answered_before or self._retry_at >= self._close_by:
                return False
            self._wakeup.wait(self._retry_at - time.monotonic())

    def _say_goodbye(self, link: Link, closing: AttemptClose) -> bool:
        try:
            link.close(closing)
        except UplinkError as error:
            log.warning("the end of the attempt was not delivered: %s", error)
            return False
        return True
