"""The closure of an optimizer's step, which makes the gradients that the step is taken by."""

from collections.abc import Callable
from typing import Any

from runwatch_hooks.wrapping.wraps import Arguments, Keywords

Closure = Callable[[], Any]


def closure_of(args: Arguments, kwargs: Keywords) -> Closure | None:
    """Of a step's arguments, of which the first is the optimizer itself."""
    closure: Closure | None = kwargs.get("closure", args[1] if len(args) > 1 else None)
    return closure


def followed_by(
    then: Callable[[], None], closure: Closure, args: Arguments, kwargs: Keywords
) -> tuple[Arguments, Keywords]:
    """The same arguments, but for a closure that does something more whenever it has run."""

    def evaluate() -> Any:
        loss = closure()
        then()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": evaluate}
    return (args[0], evaluate, *args[2:]), kwargs
