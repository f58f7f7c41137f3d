"""The hooks closest to an optimizer's step: the last one before it, and the first one after it.

Torch calls an optimizer's own hooks between its global hooks and the step. A program may use them
to step a schedule or to fix gradients. A part of ours that changes learning rates or gradients for
the duration of a step must do so inside of that. So our hooks are registered on each optimizer, as
the last pre-hook and the first post-hook, and at each step they are moved back if others came
between. Several listeners nest like `with` blocks: the first to register is the first before a
step and the last after it.
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
"""An optimizer's hooks, by the ids of their handles, as torch stores them."""


class CloseHandle:
    """One listener's registration; `remove` may be called more than once."""

    def __init__(self, before: StepHook, after: StepHook) -> None:
        self.before: Final = before
        self.after: Final = after

    def remove(self) -> None:
        _PLACE.drop(self)


def hear_close_to_steps(
    before: StepHook, after: StepHook, optimizers: Iterable[Optimizer]
) -> CloseHandle:
    """Call `before` and `after` around each step of every optimizer; `after` only if the step did
    not raise.

    On `optimizers` the hooks are registered at once, on others at their next step. A step that is
    compiled needs them beforehand: torch reads the hooks before it calls any.
    """
    handle = CloseHandle(before, after)
    _PLACE.add(handle)
    for optimizer in optimizers:
        _PLACE.take(optimizer)
    return handle


class _Place:
    """The close hooks of a process, shared by all its runs."""

    def __init__(self) -> None:
        self._changing = threading.RLock()  # reentrant: a signal handler may end a run here
        self._handles: tuple[CloseHandle, ...] = ()
        self._taking: StepHandle | None = None
        self._bearers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        """Optimizers with our hooks -> the thread in which those were registered."""

    @cached_property
    def _before(self) -> StepHook:  # made on first use, as `untraced` imports torch's compiler
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
            return  # a wrapper that never called torch's `Optimizer.__init__` has no hooks
        before, after = _hooks_of(optimizer)
        is_last = next(reversed(before.values()), None) is self._before
        if is_last and next(iter(after.values()), None) is self._after:
            return
        with self._changing:
            self._bearers[optimizer] = threading.get_ident()
            _put_at_end(before, self._before, optimizer.register_step_pre_hook, last=True)
            _put_at_end(after, self._after, optimizer.register_step_post_hook, last=False)

    def _leave(self, optimizer: Optimizer, thread: int) -> None:
        """Remove our hooks, unless torch may be iterating over them, in this thread or in another:
        it would raise into the training. Hooks that stay have no listeners and do nothing."""
        if thread == threading.get_ident() and not is_under_way(optimizer):
            before, after = _hooks_of(optimizer)
            _take_out(before, self._before)
            _take_out(after, self._after)
            del self._bearers[optimizer]

    def _take_before_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        self.take(optimizer)  # in time: torch iterates over these hooks after all global ones

    def _tell_before(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        changed = None
        for handle in self._handles:  # a tuple: not affected by those that come or leave meanwhile
            told = handle.before(optimizer, args, kwargs)
            if told is not None:
                changed = args, kwargs = told
        return changed

    def _tell_after(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        for handle in reversed(self._handles):
            handle.after(optimizer, args, kwargs)


_PLACE: Final = _Place()
"""One per process, like torch's global hooks."""


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
    if isinstance(hooks, OrderedDict):  # it is one, although torch annotates a plain dict
        cast("OrderedDict[int, Any]", hooks).move_to_end(number, last=last)


def _take_out(hooks: Hooks, ours: Callable[..., Any]) -> None:
    number = _number_of(hooks, ours)
    if number is not None:
        del hooks[number]
