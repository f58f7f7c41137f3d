"""Hooks on objects that the program may copy or pickle, such as optimizers."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Generic, ParamSpec, TypeVar

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
