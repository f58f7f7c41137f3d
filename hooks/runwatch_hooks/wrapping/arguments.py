"""The arguments of a call that was heard, by place or by name."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from runwatch_hooks.wrapping.wraps import Arguments, Keywords


def argument(args: Arguments, kwargs: Keywords, place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs[name]


def tensors_at(args: Arguments, kwargs: Keywords, place: int, name: str) -> Sequence[Tensor]:
    """An argument of torch's that is a tensor or several."""
    given: Tensor | Sequence[Tensor] = argument(args, kwargs, place, name)
    return [given] if isinstance(given, Tensor) else given
