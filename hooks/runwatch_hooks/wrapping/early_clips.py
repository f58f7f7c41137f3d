"""Clips that a program imported by name before the hook stood in their place.

Before torch writes to gradients it groups them, by a function that is looked up at call time.
"""

import sys
from types import FrameType
from typing import Final

from torch.nn.utils import clip_grad

from runwatch_hooks.wrapping.wraps import Wrap

GROUPING: Final = "_group_tensors_by_device_and_dtype"
"""In torch's module of clips; of a list of lists, of which the gradients are the first."""
_FILE: Final = clip_grad.__file__
_READS: Final = "_get_total_norm"
_HEARD: Final = Wrap.__call__.__code__


def is_unheard_clip() -> bool:
    """Whether a clip has called the grouping that calls this, and none of our wraps the clip."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename != _FILE:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == _READS:
        return False
    while frame is not None and frame.f_code.co_filename == _FILE:  # torch's `no_grad` around it
        frame = frame.f_back
    return frame is None or frame.f_code is not _HEARD
