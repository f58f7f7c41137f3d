"""A step that only brings an optimizer's state into being, and trains nothing.

torch.distributed.checkpoint takes such a step where it finds no state, by gradients and rates of 0.
A warm-up that begins at 0 takes its first step alike, so that numbers do not tell them apart.
"""

import sys
from types import FrameType
from typing import Final

from torch import Tensor
from torch.optim import Optimizer

_REHEARSES: Final = "_init_optim_state"
"""The function of torch that takes it; it has no public name."""


def is_rehearsal(optimizer: Optimizer) -> bool:
    """Asked from within a hook of the step. The stack is looked at only where it may be one."""
    rates = (group.get("lr") for group in optimizer.param_groups)  # one of one's own may have none
    if optimizer.state or any(not isinstance(rate, Tensor) and rate != 0.0 for rate in rates):
        return False
    here: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while here is not None and here.f_code.co_name != _REHEARSES:
        here = here.f_back
    return here is not None
