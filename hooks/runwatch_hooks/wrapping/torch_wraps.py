"""Wrappers around functions of torch, which do nothing while torch.compile traces a call."""

from typing import Any

import torch

from runwatch_hooks.wrapping.wraps import Holds, Wrap


class TorchWrap(Wrap):
    """Calls no listeners while a call is traced: their code would cause a graph break."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class TorchHolds(Holds):
    """One listener's wrappers around functions that may be traced."""

    def __init__(self) -> None:
        super().__init__(TorchWrap)
