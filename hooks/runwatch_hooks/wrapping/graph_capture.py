"""Whether a CUDA graph is being captured."""

from typing import Any, Final

import torch

_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


def is_capturing() -> bool:
    """Whether the current stream is being captured. Work that the hook queued then would be part of
    the graph, and each replay would write to addresses that may no longer belong to the hook."""
    return bool(_CUDA.is_initialized() and _CUDA.is_current_stream_capturing())
