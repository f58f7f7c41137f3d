"""Wrappers around functions of torch, which do nothing while torch.compile traces a call."""

from functools import cache
from typing import Any

import torch

from runwatch_hooks.wrapping.untraced import untraced
from runwatch_hooks.wrapping.wraps import Subscriptions, Wrap


class TorchWrap(Wrap):
    """Calls no listeners while a call is traced: their code would cause a graph break."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        return super().__call__(*args, **kwargs)


@cache
def untraced_wrap() -> type[Wrap]:
    """The wrapper class for functions that torch.compile never traces.

    It reports calls from compiled code too. Otherwise the compiler would trace the wrapper, and the
    listeners would not be called. Made on first use, because `untraced` imports torch's compiler.
    """
    return type("UntracedWrap", (Wrap,), {"__call__": untraced(Wrap.__call__)})


class TorchSubscriptions(Subscriptions):
    """Subscriptions to functions that may be traced."""

    def __init__(self) -> None:
        super().__init__(TorchWrap)
