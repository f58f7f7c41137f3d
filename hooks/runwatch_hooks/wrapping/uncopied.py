"""Hooks of ours on what the program may copy, or save, with all that it bears."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Generic, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Uncopied(Generic[_Arguments, _Result]):
    """A hook that no copy takes along: a copied or pickled one does nothing, and needs nothing of
    ours to be loaded."""

    def __init__(self, hook: Callable[_Arguments, _Result]) -> None:
        self._hook = hook

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return self._hook(*args, **kwargs)

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (nullcontext(), "__exit__")  # takes what comes and returns None
