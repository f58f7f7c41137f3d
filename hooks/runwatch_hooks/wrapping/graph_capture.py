"""Whether what is queued now is recorded into a CUDA graph, to be replayed without our Python."""

from typing import Any, Final

import torch

_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


def is_capturing() -> bool:
    """On the current stream. What we queued there would run at each replay as it was recorded: by
    addresses of long ago, into memory that is ours no more."""
    return bool(_CUDA.is_initialized() and _CUDA.is_current_stream_capturing())
