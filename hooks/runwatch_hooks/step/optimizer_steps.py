"""Steps of optimizers: the hooks around them, and which calls of `step` are steps of the training.

Torch calls an optimizer's own hooks between its global hooks and the step. A program may use them
to step a schedule or to fix gradients. A part of ours that changes learning rates or gradients for
the duration of a step must do so inside of that. So our hooks are registered on each optimizer, as
the last pre-hook and the first post-hook, and at each step they are moved back if others came
between. Several listeners nest like `with` blocks: the first to register is the first before a
step and the last after it.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import FrameType
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, WeakSet, ref

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.step.torch_hooks import Uncopied, untraced
from runwatch_hooks.wraps import Arguments, Keywords

StepHook = Callable[[Optimizer, Arguments, Keywords], tuple[Arguments, Keywords] | None]
"""Before a step, it may return changed arguments; after a step, its result is ignored."""

_STEP: Final = "profile_hook_step.<locals>.wrapper"
"""Qualified name of torch's wrapper around `step`, which calls the hooks."""


class _Stand:
    """The listeners before steps, or those after steps, in the order of registration.

    All of the hook's global optimizer step hooks, registered with torch as a single one. Torch
    iterates over its global hooks at each step, and raises into the training if one is added or
    removed meanwhile: by a run that begins or ends in another thread, or by a part of the hook that
    switches itself off after a fault. So torch gets one pre-hook and one post-hook, which stay from
    the first listener to the last and call all listeners. torch.compile does not trace them.
    """

    def __init__(self, register: Callable[..., RemovableHandle]) -> None:
        self._register = register
        self._handle: RemovableHandle | None = None
        self._hooks: tuple[StepHook, ...] = ()
        self._changing = threading.RLock()  # reentrant: a signal handler may end a run here

    def add(self, hook: StepHook) -> None:
        with self._changing:
            self._hooks = (*self._hooks, hook)
            if self._handle is None:
                self._handle = self._register(untraced(self._tell))

    def drop(self, hook: StepHook) -> None:
        with self._changing:
            self._hooks = tuple(one for one in self._hooks if one is not hook)
            if not self._hooks and self._handle is not None:
                self._handle.remove()
                self._handle = None

    def _tell(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        changed = None
        for hook in self._hooks:  # a tuple: not affected by those that come or leave meanwhile
            told = hook(optimizer, args, kwargs)
            if told is not None:
                changed = args, kwargs = told
        return changed


_BEFORE: Final = _Stand(register_optimizer_step_pre_hook)
_AFTER: Final = _Stand(register_optimizer_step_post_hook)
"""One pair per process, shared by all runs, like torch's global hooks."""


class StepHandle:
    """One listener's registration; `remove` may be called more than once."""

    def __init__(self, stand: _Stand, hook: StepHook) -> None:
        self._stand = stand
        self._hook = hook
        stand.add(hook)

    def remove(self) -> None:
        self._stand.drop(self._hook)


def hear_before_steps(hook: StepHook) -> StepHandle:
    """Call `hook` before each step of every optimizer, in any thread."""
    return StepHandle(_BEFORE, hook)


def hear_after_steps(hook: StepHook) -> StepHandle:
    """Call `hook` after each step of every optimizer that did not raise."""
    return StepHandle(_AFTER, hook)


def is_within_another_step_of(optimizer: Optimizer) -> bool:
    """Whether the step that called this hook, of any optimizer, runs inside another step of this
    one. False for compiled steps, which have no frame of torch's wrapper on the stack."""
    step = _next_step_above(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    return step is not None and _is_of(optimizer, step.f_back)


def is_under_way(optimizer: Optimizer) -> bool:
    """Whether a step of the optimizer, including its hooks, is running in any thread. False for
    compiled steps."""
    frames = sys._current_frames().values()  # pyright: ignore[reportPrivateUsage]
    return any(_is_of(optimizer, frame) for frame in frames)


def _is_of(optimizer: Optimizer, frame: FrameType | None) -> bool:
    step = _next_step_above(frame)
    while step is not None:
        if step.f_locals.get("self") is optimizer:
            return True
        step = _next_step_above(step.f_back)
    return False


def _next_step_above(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not frame.f_code.co_qualname.endswith(_STEP):
        frame = frame.f_back
    return frame


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


class NestedSteps:
    """The steps in progress. To be called by step hooks, at each step.

    Finds the outermost of nested calls of one optimizer's `step`. A subclass may call its parent's
    `step`, and torch's hooks run for both. Calls are counted by the hooks and checked against the
    call stack, because a step that raises runs its pre-hook and never its post-hook. No frame is
    kept for this: it would keep alive the failed step's variables, such as the batch that did not
    fit into memory.
    """

    def __init__(self) -> None:
        self._depths: dict[int, int] = {}
        """Optimizer's id -> nesting depth. After a step that raised, the entry stays, and its id
        may go to another optimizer: the call stack then shows that no step of that one is
        running."""

    def enter(self, optimizer: Optimizer) -> bool:
        """A step begins. Returns whether it is the outermost one."""
        depth = self._depths.get(id(optimizer), 0)
        if depth and not is_within_another_step_of(optimizer):
            depth = 0
        self._depths[id(optimizer)] = depth + 1
        return depth == 0

    def leave(self, optimizer: Optimizer) -> bool:
        """A step has ended. Returns whether it is the outermost one, and its beginning was seen."""
        depth = self._depths.pop(id(optimizer), 0)
        if depth > 1 and is_within_another_step_of(optimizer):
            self._depths[id(optimizer)] = depth - 1
            return False
        return depth > 0


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


class HandedSteps:
    """The steps in progress, of all optimizers. To be called by step hooks, at the outermost step
    of each optimizer; `slots` are those of its parameters.

    Detects optimizers that delegate their step to another: `ZeroRedundancyOptimizer`, SAM. Both run
    torch's hooks and hold the same parameters, but the two calls are one step. It is read at the
    inner call, which changes the parameters.
    """

    def __init__(self) -> None:
        self._under_way: list[_Step] = []
        self._wrappers: WeakSet[Optimizer] = WeakSet()

    def begin(self, optimizer: Optimizer, slots: Sequence[int]) -> bool:
        """A step begins. Returns whether another optimizer with some of these slots delegates
        it."""
        givers: list[_Step] = []
        if self._under_way:
            # A step that raised has run its pre-hook, and never runs its post-hook.
            self._under_way = [one for one in self._under_way if one.is_around()]
            ours = set(slots)
            givers = [one for one in self._under_way if not ours.isdisjoint(one.slots)]
            for one in givers:
                one.handed |= ours
        self._under_way.append(_Step(optimizer, slots, is_handed=bool(givers)))
        return bool(givers)

    def end(self, optimizer: Optimizer) -> bool:
        """A step has ended. Returns whether it was a step of its own, not part of another's."""
        while self._under_way:
            step = self._under_way.pop()
            if step.optimizer() is optimizer:
                if step.handed.issuperset(step.slots):
                    self._wrappers.add(optimizer)
                return not step.is_handed
        return True

    def hands_on(self, optimizer: Optimizer) -> bool:
        """Whether this optimizer was seen to delegate a step for all its parameters."""
        return optimizer in self._wrappers


class _Step:
    """A step in progress."""

    def __init__(self, optimizer: Optimizer, slots: Sequence[int], *, is_handed: bool) -> None:
        self.optimizer = ref(optimizer)
        self.slots = slots
        self.is_handed = is_handed
        self.handed: set[int] = set()
        """Slots that inner steps have taken over since it began."""

    def is_around(self) -> bool:
        """Whether the step that called this hook runs inside this one."""
        optimizer = self.optimizer()
        return optimizer is not None and is_within_another_step_of(optimizer)


# Recognises a step that only initialises an optimizer's state, and trains nothing.
# torch.distributed.checkpoint makes such a step if an optimizer has no state, with gradients and
# learning rates of 0. The first step of a warm-up from 0 looks the same, so the caller is checked.

_REHEARSES: Final = "_init_optim_state"
"""The private function of torch that makes such a step."""


def is_rehearsal(optimizer: Optimizer) -> bool:
    """To be called from a step hook. Walks the call stack only if the step may be one of these."""
    rates = (group.get("lr") for group in optimizer.param_groups)  # custom optimizers may lack it
    if optimizer.state or any(not isinstance(rate, Tensor) and rate != 0.0 for rate in rates):
        return False
    here: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while here is not None and here.f_code.co_name != _REHEARSES:
        here = here.f_back
    return here is not None
