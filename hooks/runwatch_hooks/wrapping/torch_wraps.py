"""Wrappers around functions of torch, which do nothing while torch.compile traces a call."""

from functools import cache
from typing import Any

import torch

from runwatch_hooks.wrapping.untraced import untraced
from runwatch_hooks.wrapping.wraps import Holds, Wrap


class TorchWrap(Wrap):
    """Calls no listeners while a call is traced: their code would cause a graph break."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        return super().__call__(*args, **kwargs)


@cache
def untraced_wrap() -> type[Wrap]:
    """Of a function that torch.compile never traces: such a wrap tells also of a call from code
    that is compiled up to there, which would else trace the wrap itself, and tell nobody.

    Not made before it is used, as `untraced` imports torch's compiler.
    """
    return type("UntracedWrap", (Wrap,), {"__call__": untraced(Wrap.__call__)})


class TorchHolds(Holds):
    """One listener's wrappers around functions that may be traced."""

    def __init__(self) -> None:
        super().__init__(TorchWrap)
