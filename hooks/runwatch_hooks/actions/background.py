"""A background thread for disk work, which runs one piece at a time."""

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Final

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.priority import yield_to_training

log = OwnLog(__name__)

Work = Callable[[], None]

EXIT_TIMEOUT_S: Final = 60.0
"""How long the interpreter's exit waits for work in progress. A checkpoint is worth waiting for,
and a thread that is inside torch while the interpreter shuts down would abort the process."""


class Background:
    """One thread, started with the first piece of work and ended by `close`. Work must not
    raise."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        """Raises RuntimeError if no thread can be started; the next piece of work tries again."""
        if self._thread is None:
            # A daemon thread, so that a hanging disk cannot keep the trainer from exiting.
            thread = threading.Thread(target=self._run, name="runwatch-disk", daemon=True)
            thread.start()
            self._thread = thread
            atexit.register(self._close_at_exit)
        self._work.put(work)

    def drain(self, timeout_s: float) -> bool:
        """Wait for all submitted work; False after `timeout_s`."""
        if self._thread is None or not self._thread.is_alive():  # in a forked child it is not
            return True
        done = threading.Event()
        self._work.put(done.set)
        return done.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait for all submitted work and end the thread. After `timeout_s` False: the thread goes
        on, and the interpreter's exit waits for it again."""
        if not self.drain(timeout_s):
            return False
        if self._thread is not None:
            atexit.unregister(self._close_at_exit)
            self._work.put(None)
            self._thread.join()
            self._thread = None
        return True

    def _close_at_exit(self) -> None:
        if not self.close(EXIT_TIMEOUT_S):
            log.warning("a checkpoint was not written completely after %.0f s", EXIT_TIMEOUT_S)

    def _run(self) -> None:
        yield_to_training()
        while (work := self._work.get()) is not None:
            work()
