"""Wakes the sender. May be called from any code, including signal handlers."""

import queue


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
