"""A bell that the training thread can ring from anywhere, even from a signal handler."""

import queue


class Wakeup:
    """As `threading.Event`, but `ring` takes no lock that an interrupted `ring` could hold.

    `SimpleQueue.put` is documented as reentrant; `Event.set` is not, and a handler of SIGTERM
    that ends the run would hang where it interrupted one.
    """

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Until the bell has rung since the last wait, at most for a time; whether it has."""
        try:
            self._rings.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return False
        return True
