"""The hook's threads: of low priority, and woken from any code."""

import os
import queue
import sys
import threading
from typing import Final

from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

LOWEST_NICENESS: Final = 19


def yield_to_training() -> None:
    """Give the calling thread the lowest priority, on Linux.

    Measured with torch on 2 cores: another thread at normal priority that is busy a quarter of the
    time makes a step a third longer, because each parallel region waits for its last core. At
    niceness 19 the cost cannot be measured.
    """
    if sys.platform != "linux":  # elsewhere the call would change the whole process
        return
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_NICENESS)
    except OSError as error:
        log.info("the thread keeps its priority: %s", error)


class Wakeup:
    """Like `threading.Event`, but reentrant.

    `SimpleQueue.put` is documented as reentrant and `Event.set` is not: a SIGTERM handler that ends
    the run would deadlock if it interrupted one.
    """

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a `ring` since the last wait, at most `timeout_s`; returns whether there was
        one.
        """
        try:
            self._rings.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return False
        return True
