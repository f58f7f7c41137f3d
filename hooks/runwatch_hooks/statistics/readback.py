"""Numbers on their way from an accelerator to the host, which nothing waits for."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch.nonfinite import ABSENT_32

_WITHOUT_LOCKED_PAGES: Final = ("cpu", "meta", "mps")
"""Devices whose copies do not need it: MPS shares the host's memory."""


def locks_pages(device: torch.device) -> bool:
    """Whether copies to and from a device need page-locked memory: otherwise the driver waits for
    all queued work before it copies."""
    return device.type not in _WITHOUT_LOCKED_PAGES


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor copied to a device asynchronously; the tensor itself if it is there already.

    The page-locked buffer in between is managed by torch's allocator, which does not reuse it
    before the device has read it.
    """
    if numbers.device.type == "cpu" and locks_pages(device):
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=device.type != "cpu")


def divisor_of(scale: Tensor | None, device: torch.device) -> Tensor | float:
    """What gradients on a device must be divided by: a float if the scale is on the host."""
    if scale is None:
        return 1.0
    return float(scale) if scale.device.type == "cpu" else to_device(scale, device)


_WITHOUT_STREAMS: Final = ("cpu", "meta")
"""Devices without a queue."""


def set_mark(device: torch.device, *, is_timed: bool = False) -> torch.Event | None:
    """An event after all work queued on the device's current stream; None for devices without a
    queue, where everything is done at once (`cpu`, `meta`).

    The stream is passed explicitly. Otherwise the event would be recorded on the *current* device,
    whatever device it was created for, and would pass before the work that it stands for.
    """
    if device.type in _WITHOUT_STREAMS:
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
        if self._device.type in _WITHOUT_STREAMS:
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
    if device.type in _WITHOUT_STREAMS:
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


_ROOM_BYTES: Final = 2**20
_LEAST_DEPTH: Final = 16
_MOST_DEPTH: Final = 256
"""Limit on the steps that the host may be ahead. With a CUDA graph a step is a single launch, and
a driver queues a thousand of those before it makes the host wait."""


class Ticket:
    """Numbers that are being copied."""

    def __init__(self, values: Tensor, done: torch.Event | None) -> None:
        self._values = values
        self._done = done
        self.is_taken = False

    def is_there(self) -> bool:
        return has_passed(self._done)

    def values(self) -> NDArray[np.float32]:
        """(N,) a copy of the numbers. Only valid once `is_there`."""
        self.is_taken = True
        return self._values.numpy().copy()


class Readback:
    """A ring of pinned host memory into which rows from one device are copied.

    A copy to memory that is not pinned would be a sync, and so would waiting for a slot whose row
    has not been taken: if there is no free slot, the row is refused.
    """

    def __init__(self, num_values: int, device: torch.device, depth: int | None = None) -> None:
        """`depth` is the number of slots; by default as many as fit into a MiB, from 16 to 256."""
        depth = depth or min(max(_ROOM_BYTES // (4 * num_values), _LEAST_DEPTH), _MOST_DEPTH)
        self._device = device
        self.num_values = num_values
        on_host = device.type == "cpu"
        # Explicit, because a program may have changed torch's default device and dtype, and may be
        # in inference mode: what is made there can be written to only there.
        with torch.inference_mode(mode=False):
            self._ring = torch.empty(
                (depth, num_values), dtype=torch.float32, device="cpu", pin_memory=not on_host
            )
        self._tickets: list[Ticket | None] = [None] * depth
        self._next = 0

    def send(self, values: Tensor) -> Ticket | None:
        """Start copying (N,) float32 numbers; None if no slot is free."""
        slot = self._next % len(self._tickets)
        last = self._tickets[slot]
        if last is not None and not last.is_taken:
            return None
        self._next += 1
        row = self._ring[slot, : values.numel()]
        row.copy_(values, non_blocking=True)
        ticket = self._tickets[slot] = Ticket(row, set_mark(self._device))
        return ticket


def absent(*shape: int, device: torch.device) -> Tensor:
    """A float32 tensor in which every value is 'not recorded'."""
    bits = int(ABSENT_32.view(np.int32))  # by its bits: a Python float cannot hold this NaN
    return torch.full(shape, bits, dtype=torch.int32, device=device).view(torch.float32)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_BLOCK_BYTES: Final = 512
"""The smallest block of an accelerator's allocator."""


class Recent(Generic[_Key, _Value]):
    """Drops the least recently used entries, but never the newest, however large it is."""

    def __init__(self, room: int) -> None:
        """`room` is the limit on the sum of sizes given to `put`, usually bytes."""
        self._room = room
        self._taken = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def taken(self) -> int:
        """The sum of the sizes of all entries."""
        return self._taken

    def get(self, key: _Key) -> _Value | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def values(self) -> list[_Value]:
        """All values, the least recently used first."""
        return [value for value, _ in self._entries.values()]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Add a new entry, and drop the least recently used ones beyond the limit."""
        self._entries[key] = value, size
        self._taken += size
        while self._taken > self._room and len(self._entries) > 1:
            _, (_, size_dropped) = self._entries.popitem(last=False)
            self._taken -= size_dropped


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The device memory that tensors take, in whole blocks of the allocator."""
    return sum(-(-one.nbytes // _BLOCK_BYTES) * _BLOCK_BYTES for one in tensors)
