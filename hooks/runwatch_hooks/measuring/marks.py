"""Events in an accelerator's stream, which the host can query later."""

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor

_WITHOUT: Final = ("cpu", "meta")
"""Devices without a queue."""


def set_mark(device: torch.device, *, is_timed: bool = False) -> torch.Event | None:
    """An event after all work queued on the device's current stream; None for devices without a
    queue, where everything is done at once (`cpu`, `meta`).

    The stream is passed explicitly. Otherwise the event would be recorded on the *current* device,
    whatever device it was created for, and would pass before the work that it stands for.
    """
    if device.type in _WITHOUT:
        return None
    event = torch.Event(device, enable_timing=is_timed)
    event.record(torch.accelerator.current_stream(device))
    return event


class Course:
    """Orders the use of tensors kept on a device between streams. A program may train in a stream
    of its own and end its steps in another; each new one waits for the last."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.Stream | None = None

    def follow(self, kept: Callable[[], Iterable[Tensor]]) -> None:
        """The current stream is about to use the kept tensors."""
        if self._device.type in _WITHOUT:
            return
        now = torch.accelerator.current_stream(self._device)
        last, self._stream = self._stream, now
        if last is None or last == now:
            return
        now.wait_stream(last)
        for tensor in kept():
            tensor.record_stream(now)  # its memory is not reused before this stream is done


def stream_of(device: torch.device) -> int:
    """The id of the device's current stream; 0 for devices without streams."""
    if device.type in _WITHOUT:
        return 0
    return int(torch.accelerator.current_stream(device).stream_id)


def has_passed(mark: torch.Event | None) -> bool:
    """Whether all work queued before it is done. Does not wait."""
    return mark is None or bool(mark.query())


def wait_for(mark: torch.Event | None) -> None:
    """Wait until it has passed. Used at the end of a run, in the thread that writes to disk, and
    for a rollback; never during a training step."""
    if mark is not None:
        mark.synchronize()  # host sync: asked for
