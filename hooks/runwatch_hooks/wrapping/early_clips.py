"""Detects clips that no wrapper sees, because the program imported them by name before `attach`.

Every clip of torch first groups the gradients, by a function that is looked up when it is called
and can therefore be wrapped at any time.
"""

import sys
from types import FrameType
from typing import Final

from torch.nn.utils import clip_grad

from runwatch_hooks.wrapping.wraps import Wrap

GROUPING: Final = "_group_tensors_by_device_and_dtype"
"""The grouping function in `torch.nn.utils.clip_grad`. It takes a list of lists of tensors, of
which the first holds the gradients."""
_FILE: Final = clip_grad.__file__
_READS: Final = "_get_total_norm"
_HEARD: Final = Wrap.__call__.__code__


def is_unheard_clip() -> bool:
    """Whether the grouping function that calls this was called by a clip without a wrapper.
    Decided by the call stack."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename != _FILE:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == _READS:
        return False
    while frame is not None and frame.f_code.co_filename == _FILE:  # includes the `no_grad` wrapper
        frame = frame.f_back
    return frame is None or frame.f_code is not _HEARD
