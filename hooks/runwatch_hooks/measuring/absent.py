"""Tensors filled with 'not recorded', a NaN that no arithmetic produces."""

import numpy as np
import torch
from torch import Tensor

from runwatch.nonfinite import ABSENT_32


def absent(*shape: int, device: torch.device) -> Tensor:
    """A float32 tensor in which every value is 'not recorded'."""
    bits = int(ABSENT_32.view(np.int32))  # by its bits: a Python float cannot hold this NaN
    return torch.full(shape, bits, dtype=torch.int32, device=device).view(torch.float32)
