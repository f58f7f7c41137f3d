"""Recognises a step that only initialises an optimizer's state, and trains nothing.

torch.distributed.checkpoint makes such a step if an optimizer has no state, with gradients and
learning rates of 0. The first step of a warm-up from 0 looks the same, so the caller is checked.
"""

import sys
from types import FrameType
from typing import Final

from torch import Tensor
from torch.optim import Optimizer

_REHEARSES: Final = "_init_optim_state"
"""The private function of torch that makes such a step."""


def is_rehearsal(optimizer: Optimizer) -> bool:
    """To be called from a step hook. Walks the call stack only if the step may be one of these."""
    rates = (group.get("lr") for group in optimizer.param_groups)  # custom optimizers may lack it
    if optimizer.state or any(not isinstance(rate, Tensor) and rate != 0.0 for rate in rates):
        return False
    here: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while here is not None and here.f_code.co_name != _REHEARSES:
        here = here.f_back
    return here is not None
