"""Wrappers around functions of torch, which do nothing while torch.compile traces a call."""

from functools import cache
from types import ModuleType
from typing import Any

import torch

from runwatch_hooks.wrapping.untraced import untraced
from runwatch_hooks.wrapping.wraps import Listeners, Subscriptions, Wrap


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
    """Subscriptions to functions that may be traced. Where torch has given up compiling a wrapper,
    it runs as it is, and what it calls would be traced: so the listeners are not."""

    def __init__(self) -> None:
        super().__init__(TorchWrap)

    def listen(self, owner: ModuleType | type, name: str, listeners: Listeners) -> None:
        before, after = listeners.before, listeners.after
        super().listen(
            owner,
            name,
            Listeners(
                before=None if before is None else untraced(before),
                after=None if after is None else untraced(after),
            ),
        )
