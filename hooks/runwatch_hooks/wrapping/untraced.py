"""Excludes code of the hook from torch.compile.

Python code of ours would be traced, with NumPy's arrays as if they were tensors, and recompiled
whenever its state changes, up to torch's limit of 8 recompilations. That breaks the hook, and where
the compiler then gives up, the program's own code no longer runs as it would without us.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar, cast

import torch

_Hook = TypeVar("_Hook", bound=Callable[..., object])
_Class = TypeVar("_Class")


def untraced(hook: _Hook) -> _Hook:
    """The same function, which compiled code calls without tracing it."""
    disable = cast("Callable[[_Hook], _Hook]", torch.compiler.disable)
    return disable(hook)


def untraced_class(cls: type[_Class], interface: type, *others: str) -> type[_Class]:
    """The same class, of which compiled code calls the public parts of `interface`, and the
    `others`, without tracing them. Made on first use, because `untraced` imports torch's compiler.
    """
    return cast("type[_Class]", _made(cast("Any", cls), interface, others))


@cache
def _made(cls: type, interface: type, others: tuple[str, ...]) -> type:
    return type(cls.__name__, (cls,), dict(_untraced_parts(cls, interface, others)))


def _untraced_parts(cls: type, interface: type, others: Iterable[str]) -> Iterator[tuple[str, Any]]:
    public = (name for base in interface.__mro__ for name in vars(base) if name[0] != "_")
    for name in dict.fromkeys([*public, *others]):
        part = getattr(cls, name)
        if isinstance(part, property) and part.fget is not None:
            yield name, property(untraced(part.fget))
        elif callable(part):
            yield name, untraced(part)
