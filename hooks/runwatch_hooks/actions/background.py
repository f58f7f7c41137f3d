"""Disk work beside the training thread, one piece after the other."""

import queue
import threading
from collections.abc import Callable

from runwatch_hooks.transport.priority import yield_to_training

Work = Callable[[], None]


class Background:
    """One thread, started with the first piece of work. Work must not raise."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        if self._thread is None:
            # A daemon: a hanging disk must not keep the trainer from exiting (`drain` is bounded).
            self._thread = threading.Thread(target=self._run, name="runwatch-disk", daemon=True)
            self._thread.start()
        self._work.put(work)

    def drain(self, timeout_s: float) -> bool:
        """Waits for what was submitted; False where it took too long."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._work.put(done.set)
        return done.wait(timeout_s)

    def _run(self) -> None:
        yield_to_training()
        while True:
            self._work.get()()
