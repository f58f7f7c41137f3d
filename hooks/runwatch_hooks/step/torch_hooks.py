"""Wraps functions of torch, untraced by its compiler and uncopied by deepcopy.

Python code of ours would be traced, with NumPy's arrays as if they were tensors, and recompiled
whenever its state changes, up to torch's limit of 8 recompilations. That breaks the hook, and where
the compiler then gives up, the program's own code no longer runs as it would without us.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from types import ModuleType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from runwatch_hooks.wraps import Arguments, Keywords, Listeners, Subscriptions, Wrap

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


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Uncopied(Generic[_Arguments, _Result]):
    """A hook whose copies do nothing. A pickle of it can be loaded without this package."""

    def __init__(self, hook: Callable[_Arguments, _Result]) -> None:
        self._hook = hook

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return self._hook(*args, **kwargs)

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (nullcontext(), "__exit__")  # accepts any arguments and returns None


def argument(args: Arguments, kwargs: Keywords, place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs[name]


def tensors_at(args: Arguments, kwargs: Keywords, place: int, name: str) -> Sequence[Tensor]:
    """An argument of torch's that is a tensor or several."""
    given: Tensor | Sequence[Tensor] = argument(args, kwargs, place, name)
    return [given] if isinstance(given, Tensor) else given


_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


def is_capturing() -> bool:
    """Whether the current stream is being captured. Work that the hook queued then would be part of
    the graph, and each replay would write to addresses that may no longer belong to the hook."""
    return bool(_CUDA.is_initialized() and _CUDA.is_current_stream_capturing())


ENGINE: Final = "_engine_run_backward"
"""The function in `torch.autograd` with which `backward` and `grad` run a pass. They look it up at
each call, so a program that imported one of the two by name is heard as well."""


def is_in_backward() -> bool:
    """Whether this thread is inside a backward pass. Torch runs parts of it in threads of its own;
    the answer is right in each of them."""
    c = cast(Any, torch)._C  # torch's own check, which has no public name
    is_running: bool = c._current_graph_task_id() != -1
    return is_running
