"""What torch.compile is to leave alone.

In a compiled optimizer step our Python would be traced, and recompiled whenever its state changes,
up to the limit of 8.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import torch

_Hook = TypeVar("_Hook", bound=Callable[..., object])


def untraced(hook: _Hook) -> _Hook:
    """The same function, called as it is from compiled code."""
    disable = cast("Callable[[_Hook], _Hook]", torch.compiler.disable)
    return disable(hook)
