"""Whether a gradient contains anything but zeros, from a sample of its elements, without a sync."""

import torch
from torch import Tensor

from runwatch_hooks.measuring.readback import Readback, Ticket
from runwatch_hooks.measuring.sampled_updates import sample
from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.seeing.weak_gradients import elements_of
from runwatch_hooks.wrapping.graph_capture import is_capturing


class HeldNumbers:
    """The answer for one parameter's gradient. From an accelerator it arrives some steps later."""

    def __init__(self) -> None:
        self._device: torch.device | None = None
        self._asked: Ticket | None = None
        self._were_there: bool | None = None

    def look(self, grad: Tensor) -> None:
        """Sample the gradient now, unless an earlier answer has yet to arrive."""
        if self._asked is not None or is_capturing():
            return
        with torch.no_grad():
            elements = elements_of(local_of(grad))
            flag = sample(elements).any().to(torch.float32).reshape(1)
        if flag.device != self._device:
            self._device, self._ring = flag.device, Readback(1, flag.device, depth=1)
        self._asked = self._ring.send(flag)

    def were_there(self) -> bool | None:
        """The last answer; None before the first has arrived."""
        if self._asked is not None and self._asked.is_there():
            self._were_there = bool(self._asked.values()[0])
            self._asked = None
        return self._were_there
