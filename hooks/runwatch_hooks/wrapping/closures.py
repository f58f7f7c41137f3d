"""Closures of optimizer steps, which compute the gradients during the step (LBFGS)."""

from collections.abc import Callable
from typing import Any

from runwatch_hooks.wrapping.wraps import Arguments, Keywords

Closure = Callable[[], Any]


def closure_of(args: Arguments, kwargs: Keywords) -> Closure | None:
    """The closure among a step's arguments, the first of which is the optimizer; None without."""
    closure: Closure | None = kwargs.get("closure", args[1] if len(args) > 1 else None)
    return closure


def followed_by(
    then: Callable[[], None], closure: Closure, args: Arguments, kwargs: Keywords
) -> tuple[Arguments, Keywords]:
    """The step's arguments with a closure that also calls `then` after each evaluation."""

    def evaluate() -> Any:
        loss = closure()
        then()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": evaluate}
    return (args[0], evaluate, *args[2:]), kwargs
