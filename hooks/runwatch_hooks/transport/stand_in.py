"""Records what is queued while the sender waits for a service that does not answer.

A request may take as long as its timeout, and a program may be killed meanwhile: what lies in the
queue is lost then, and what lies in the spool is not.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.priority import yield_to_training

log = OwnLog(__name__)

_EVERY_S: Final = 1.0


class StandIn:
    """A thread that looks once a second whether the sender is held up, and records for it then."""

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
