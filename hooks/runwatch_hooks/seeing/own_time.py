"""How long a rank works by itself in a step: loading and forward, until its backward begins.

Ranks that train together end each step together, whoever is slow: in the backward pass each waits
for the sums of all. So a step's time says nothing about a rank, and what lies before its backward
does. Of accumulated gradients it is what lies before each of the backwards, added up.

In the host's memory the clock says it. On an accelerator the host runs ahead, so events are
recorded in its stream and their distance is asked for once they have passed: nothing waits.
What is slow within the backward itself is not seen here, as it cannot be told from waiting.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

from runwatch_hooks.faults import Faults
from runwatch_hooks.measuring.marks import has_passed, set_mark
from runwatch_hooks.wrapping.graph_capture import is_capturing
from runwatch_hooks.wrapping.torch_wraps import TorchHolds
from runwatch_hooks.wrapping.wraps import Arguments, Ears, Keywords, Listener

Mark = float | torch.Event
"""A moment: monotonic seconds of the host, or a place in an accelerator's stream."""

_MAX_SPANS: Final = 256
"""Backwards of a step that are followed; a step of more says what the first ones took."""


class Spans:
    """The stretches of one step in which a rank worked by itself."""

    def __init__(self, marks: Sequence[tuple[Mark, Mark]]) -> None:
        self._marks = marks

    def is_there(self) -> bool:
        """Whether the last of them has ended."""
        last = self._marks[-1][1]
        return not isinstance(last, torch.Event) or has_passed(last)

    def seconds(self) -> float:
        """All of them together. Only once `is_there`."""
        return sum(_seconds(begin, end) for begin, end in self._marks)


class OwnTime:
    """One rank's. For the training thread: nothing here waits."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._holds = TorchHolds()
        self._pid = os.getpid()
        self._device = torch.device("cpu")
        self._since: Mark | None = None
        """Since when it works by itself; None while a backward runs."""
        self._marks: list[tuple[Mark, Mark]] = []
        self._depth = 0
        self._is_disturbed = True
        """Before the first step, and where an evaluation lay in it, a step says nothing."""

    def install(self) -> None:
        ears = Ears(
            before=self._guarded(self._enter_backward), after=self._guarded(self._leave_backward)
        )
        self._holds.hold(torch.autograd, "backward", ears)  # where `Tensor.backward` looks it up

    def remove(self) -> None:
        self._holds.release()
        self._is_disturbed = True

    def begin(self, device: torch.device) -> None:
        """A step begins, of a model on a device."""
        self._device = device
        self._marks, self._depth = [], 0
        self._is_disturbed = False
        self._since = self._mark()

    def disturb(self) -> None:
        """Something else than training lies in this step."""
        self._is_disturbed = True

    def take(self) -> Spans | None:
        """Of the step that ends now; None where nothing can be said of it."""
        return None if self._is_disturbed or not self._marks else Spans(self._marks)

    def _enter_backward(self, args: Arguments, kwargs: Keywords) -> None:
        self._depth += 1
        if self._depth == 1 and self._since is not None and len(self._marks) < _MAX_SPANS:
            self._marks.append((self._since, self._mark()))
            self._since = None

    def _leave_backward(self, args: Arguments, kwargs: Keywords) -> None:
        self._depth -= 1  # a checkpointed module's backward lies within that of the loss
        if self._depth == 0:
            self._since = self._mark()

    def _mark(self) -> Mark:
        mark = set_mark(self._device, is_timed=True)
        return time.monotonic() if mark is None else mark

    def _guarded(self, listener: Callable[[Arguments, Keywords], None]) -> Listener:
        def listen(args: Arguments, kwargs: Keywords) -> None:
            if os.getpid() != self._pid or self._is_disturbed:
                return
            if is_capturing():  # a mark would be recorded into the graph, and never pass
                self.disturb()
            else:
                with self._faults.guard("own_time", self.remove):
                    listener(args, kwargs)

        return listen


def _seconds(begin: Mark, end: Mark) -> float:
    if isinstance(begin, torch.Event):
        assert isinstance(end, torch.Event)
        return float(begin.elapsed_time(end)) / 1000.0
    assert not isinstance(end, torch.Event)
    return end - begin
