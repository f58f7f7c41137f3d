"""Not recorded: the NaN that no arithmetic makes, as tensors hold it."""

import numpy as np
import torch
from torch import Tensor

from runwatch.nonfinite import ABSENT_32


def absent(*shape: int, device: torch.device) -> Tensor:
    """Float32 of a shape, none of it recorded."""
    bits = int(ABSENT_32.view(np.int32))  # as no number of Python's is this NaN
    return torch.full(shape, bits, dtype=torch.int32, device=device).view(torch.float32)
