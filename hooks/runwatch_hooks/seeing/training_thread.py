"""In which thread a run is trained. Torch tells all watches of a process of each clip and step, and
what another thread clips is of another run, whose own gradients may be written at that moment: to
look at ours from there would be to read memory that a backward pass is giving away."""

import threading
from collections.abc import Callable


class TrainingThread:
    """At first that which attached."""

    def __init__(self) -> None:
        self._ident = self._of_rows = threading.get_ident()

    def end_row(self) -> None:
        """A step has ended here."""
        self._ident = self._of_rows = threading.get_ident()

    def ends_rows_here(self) -> bool:
        """Whether the calling thread is the one that ends the run's steps. It begins the backward
        passes, though on an accelerator a pass may step optimizers in a thread of its own."""
        return threading.get_ident() == self._of_rows

    def is_here(self, is_ours: Callable[[], bool]) -> bool:
        """Whether the calling thread trains the run, or from now on does: `is_ours` says, without
        looking at a gradient, whether what it is at is the run's."""
        if threading.get_ident() != self._ident and is_ours():
            self._ident = threading.get_ident()
        return threading.get_ident() == self._ident
