"""The thread in which a run is trained.

Torch's hooks call all watches of a process for every clip and step. A clip in another thread
belongs to another run. To check that, this run's gradients must not be read from there: its own
thread may be in a backward pass that frees them.
"""

import threading
from collections.abc import Callable


class TrainingThread:
    """The training thread; at first the one that called `attach`."""

    def __init__(self) -> None:
        self._ident = self._row_ident = threading.get_ident()

    def end_row(self) -> None:
        """A step has ended in the calling thread."""
        self._ident = self._row_ident = threading.get_ident()

    def ends_rows_here(self) -> bool:
        """Whether the calling thread is the one that last ended a step. It also starts the backward
        passes; optimizers may be stepped in another thread, since on an accelerator autograd runs
        hooks in threads of its own."""
        return threading.get_ident() == self._row_ident

    def is_here(self, is_ours: Callable[[], bool]) -> bool:
        """Whether the calling thread trains the run. If `is_ours` returns true, it does from now
        on; `is_ours` must not read a gradient."""
        if threading.get_ident() != self._ident and is_ours():
            self._ident = threading.get_ident()
        return threading.get_ident() == self._ident
