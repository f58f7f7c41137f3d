"""Stand-ins for functions of torch, which leave alone what torch.compile traces."""

from typing import Any

import torch

from runwatch_hooks.wrapping.wraps import Holds, Wrap


class TorchWrap(Wrap):
    """Tells nobody of a call that is traced: what we did here would become a graph break."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.original(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class TorchHolds(Holds):
    """One listener's wraps of functions that may be traced."""

    def __init__(self) -> None:
        super().__init__(TorchWrap)
