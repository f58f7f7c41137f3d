"""Excludes hooks from torch.compile.

In a compiled optimizer step our Python code would be traced, and recompiled whenever its state
changes, up to torch's limit of 8 recompilations.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import torch

_Hook = TypeVar("_Hook", bound=Callable[..., object])


def untraced(hook: _Hook) -> _Hook:
    """The same function, which compiled code calls without tracing it."""
    disable = cast("Callable[[_Hook], _Hook]", torch.compiler.disable)
    return disable(hook)
