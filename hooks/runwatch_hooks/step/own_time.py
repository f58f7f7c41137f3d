"""Measures how long a rank works by itself in a step: data loading and forward, before backward.

Ranks that train together end each step together, whichever is slow, because in the backward pass
each waits for the all-reduce. So step times are equal, and only the time before the backward pass
shows a slow rank. With gradient accumulation it is the sum over all backward passes. A model with
buffers (the statistics of batch normalisation) is waited for in the forward, too: DDP sends rank
0's before each, and that wait is nobody's own time either.

On a CPU it is measured by the clock. On an accelerator the host runs ahead, so events are recorded
in the stream, and the time between them is read once they have passed: nothing waits. Slowness
within the backward pass is not seen here, because it cannot be told from waiting.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

from runwatch_hooks.faults import Faults
from runwatch_hooks.statistics.readback import has_passed, set_mark
from runwatch_hooks.step.torch_hooks import TorchSubscriptions, is_capturing, untraced_wrap
from runwatch_hooks.wraps import Arguments, Keywords, Listener, Listeners, Subscriptions

Mark = float | torch.Event
"""A moment: the host's monotonic clock in seconds, or an event in an accelerator's stream."""

_MAX_SPANS: Final = 256
"""Waits per step that end a span; of a step with more, only the first ones."""
_SEND_BUFFERS: Final = "_broadcast_coalesced"


class Spans:
    """The time spans of one step in which the rank worked by itself."""

    def __init__(self, marks: Sequence[tuple[Mark, Mark]]) -> None:
        self._marks = marks

    def is_there(self) -> bool:
        """Whether the last span has ended on the device."""
        last = self._marks[-1][1]
        return not isinstance(last, torch.Event) or has_passed(last)

    def seconds(self) -> float:
        """The sum of all spans. Only valid once `is_there`."""
        return sum(_seconds(begin, end) for begin, end in self._marks)


class OwnTime:
    """The stopwatch of one rank. Used by the training thread; never waits."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._subscriptions = TorchSubscriptions()
        self._sending = Subscriptions()
        self._pid = os.getpid()
        self._device = torch.device("cpu")
        self._since: Mark | None = None
        """Begin of the current span; None during a backward pass or another wait."""
        self._marks: list[tuple[Mark, Mark]] = []
        self._depth = 0
        self._is_disturbed = True
        """Whether this step gives no measurement: the first, or one with an evaluation in it."""

    def install(self) -> None:
        listeners = Listeners(
            before=self._guarded(self._enter_wait), after=self._guarded(self._leave_wait)
        )
        # `Tensor.backward` looks the function up there, and DDP the one that sends its buffers.
        self._subscriptions.listen(torch.autograd, "backward", listeners)
        self._sending = Subscriptions(untraced_wrap())  # also within a module that is compiled
        self._sending.listen(torch.distributed, _SEND_BUFFERS, listeners)

    def remove(self) -> None:
        self._subscriptions.release()
        self._sending.release()
        self._is_disturbed = True

    def begin(self, device: torch.device) -> None:
        """A step begins; the model is on `device`."""
        self._device = device
        self._marks, self._depth = [], 0
        self._is_disturbed = False
        self._since = self._mark()

    def disturb(self) -> None:
        """Something other than training happened in this step."""
        self._is_disturbed = True

    def take(self) -> Spans | None:
        """The spans of the step that ends now; None without a measurement."""
        return None if self._is_disturbed or not self._marks else Spans(self._marks)

    def _enter_wait(self, args: Arguments, kwargs: Keywords) -> None:
        self._depth += 1
        if self._depth == 1 and self._since is not None and len(self._marks) < _MAX_SPANS:
            self._marks.append((self._since, self._mark()))
            self._since = None

    def _leave_wait(self, args: Arguments, kwargs: Keywords) -> None:
        self._depth -= 1  # activation checkpointing runs a backward pass inside another
        if self._depth == 0:
            self._since = self._mark()

    def _mark(self) -> Mark:
        mark = set_mark(self._device, is_timed=True)
        return time.monotonic() if mark is None else mark

    def _guarded(self, listener: Callable[[Arguments, Keywords], None]) -> Listener:
        def listen(args: Arguments, kwargs: Keywords) -> None:
            if os.getpid() != self._pid or self._is_disturbed:
                return
            if is_capturing():  # an event would become part of the graph, and never pass
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
