"""Places in an accelerator's stream, of which the host can ask later whether they have passed."""

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor

_WITHOUT: Final = ("cpu", "meta")
"""Devices where nothing is queued."""


def set_mark(device: torch.device, *, is_timed: bool = False) -> torch.Event | None:
    """A mark behind all that is queued on the device's current stream; None where nothing is
    queued and all is done at once: in the host's memory, and of tensors without any (`meta`).

    The stream is given, as an event that is told nothing is recorded on the *current* device,
    whatever device it was made for: it would have passed before the work that it stands for.
    """
    if device.type in _WITHOUT:
        return None
    event = torch.Event(device, enable_timing=is_timed)
    event.record(torch.accelerator.current_stream(device))
    return event


class Course:
    """What is kept on a device, and written to by whichever of its streams is current: a program
    may train in one of its own and end its steps in another. Each goes on where the last one is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.Stream | None = None

    def follow(self, kept: Callable[[], Iterable[Tensor]]) -> None:
        """The current stream is about to read and write what is kept."""
        if self._device.type in _WITHOUT:
            return
        now = torch.accelerator.current_stream(self._device)
        last, self._stream = self._stream, now
        if last is None or last == now:
            return
        now.wait_stream(last)
        for tensor in kept():
            tensor.record_stream(now)  # nobody else gets its memory before this stream is done


def stream_of(device: torch.device) -> int:
    """Which of the device's streams is current; 0 in the host's memory, which has none."""
    if device.type in _WITHOUT:
        return 0
    return int(torch.accelerator.current_stream(device).stream_id)


def has_passed(mark: torch.Event | None) -> bool:
    """Whether all that was queued before it is done. Waits for nothing."""
    return mark is None or bool(mark.query())


def wait_for(mark: torch.Event | None) -> None:
    """Until it has passed: at the end of a run, on a thread that writes to the disk, or for a
    state to go back to. Never while a step is trained."""
    if mark is not None:
        mark.synchronize()  # host sync: asked for
