"""The place closest to an optimizer's step: the last hook before it, and the first after it.

Torch calls an optimizer's own hooks between its global ones and the step. A schedule that is
stepped by one of them, or a gradient that is mended there, belongs to the program: what changes
rates or gradients for the length of a step does so within. So ours stand on each optimizer itself,
the last of those before a step and the first of those after it, and look at each step whether
they still do. Who came first is first before a step, and last after it, as blocks of `with` nest.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from torch.optim import Optimizer

from runwatch_hooks.wrapping.step_hooks import (
    StepHandle,
    StepHook,
    hear_before_steps,
    is_under_way,
)
from runwatch_hooks.wrapping.uncopied import Uncopied
from runwatch_hooks.wrapping.untraced import untraced
from runwatch_hooks.wrapping.wraps import Arguments, Keywords

Hooks = dict[int, Callable[..., Any]]
"""An optimizer's own, by the numbers of their handles."""


class CloseHandle:
    """What one listener has there; `remove` may be repeated."""

    def __init__(self, before: StepHook, after: StepHook) -> None:
        self.before: Final = before
        self.after: Final = after

    def remove(self) -> None:
        _PLACE.drop(self)


def hear_close_to_steps(
    before: StepHook, after: StepHook, optimizers: Iterable[Optimizer]
) -> CloseHandle:
    """Be told of each step of each optimizer; after those that did not raise alone.

    On those given here the place is taken at once: where the first step is compiled, torch reads
    what hooks there are before it calls any.
    """
    handle = CloseHandle(before, after)
    _PLACE.add(handle)
    for optimizer in optimizers:
        _PLACE.take(optimizer)
    return handle


class _Place:
    """That of all runs of a process, on each optimizer that steps."""

    def __init__(self) -> None:
        self._changing = threading.RLock()  # a signal handler may end a run within
        self._handles: tuple[CloseHandle, ...] = ()
        self._taking: StepHandle | None = None
        self._bearers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        """Optimizers that have our hooks, and the thread in which they got them."""

    @cached_property
    def _before(self) -> StepHook:  # not before it is used: `untraced` imports torch's compiler
        return Uncopied(untraced(self._tell_before))

    @cached_property
    def _after(self) -> StepHook:
        return Uncopied(untraced(self._tell_after))

    def add(self, handle: CloseHandle) -> None:
        with self._changing:
            self._handles = (*self._handles, handle)
            if self._taking is None:
                self._taking = hear_before_steps(self._take_before_step)

    def drop(self, handle: CloseHandle) -> None:
        with self._changing:
            self._handles = tuple(one for one in self._handles if one is not handle)
            if not self._handles and self._taking is not None:
                self._taking.remove()
                self._taking = None
                for optimizer, thread in list(self._bearers.items()):
                    self._leave(optimizer, thread)

    def take(self, optimizer: Optimizer) -> None:
        if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
            return  # it only hands its step on, never was made as torch's are, and has no hooks
        before, after = _hooks_of(optimizer)
        is_last = next(reversed(before.values()), None) is self._before
        if is_last and next(iter(after.values()), None) is self._after:
            return
        with self._changing:
            self._bearers[optimizer] = threading.get_ident()
            _put_at_end(before, self._before, optimizer.register_step_pre_hook, last=True)
            _put_at_end(after, self._after, optimizer.register_step_post_hook, last=False)

    def _leave(self, optimizer: Optimizer, thread: int) -> None:
        """Torch raises into the training where a hook leaves as it goes over them: then, and where
        another thread may be about to, ours stay, and tell nobody."""
        if thread == threading.get_ident() and not is_under_way(optimizer):
            before, after = _hooks_of(optimizer)
            _take_out(before, self._before)
            _take_out(after, self._after)
            del self._bearers[optimizer]

    def _take_before_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        self.take(optimizer)  # torch begins to go over its own hooks when all global ones have run

    def _tell_before(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        changed = None
        for handle in self._handles:  # a tuple of its own, whoever comes or leaves meanwhile
            told = handle.before(optimizer, args, kwargs)
            if told is not None:
                changed = args, kwargs = told
        return changed

    def _tell_after(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        for handle in reversed(self._handles):
            handle.after(optimizer, args, kwargs)


_PLACE: Final = _Place()
"""Of a process, as torch's global hooks are."""


def _hooks_of(optimizer: Optimizer) -> tuple[Hooks, Hooks]:
    return (
        cast(Hooks, optimizer._optimizer_step_pre_hooks),  # pyright: ignore[reportPrivateUsage]
        cast(Hooks, optimizer._optimizer_step_post_hooks),  # pyright: ignore[reportPrivateUsage]
    )


def _number_of(hooks: Hooks, wanted: Callable[..., Any]) -> int | None:
    return next((number for number, hook in hooks.items() if hook is wanted), None)


def _put_at_end(
    hooks: Hooks, ours: Callable[..., Any], register: Callable[..., Any], *, last: bool
) -> None:
    number = _number_of(hooks, ours)
    if number is None:
        number = register(ours).id
    if isinstance(hooks, OrderedDict):  # as torch makes them, and calls them plain ones
        cast("OrderedDict[int, Any]", hooks).move_to_end(number, last=last)


def _take_out(hooks: Hooks, ours: Callable[..., Any]) -> None:
    number = _number_of(hooks, ours)
    if number is not None:
        del hooks[number]
