"""All of the hook's global optimizer step hooks, registered with torch as a single one.

Torch iterates over its global hooks at each step, and raises into the training if one is added or
removed meanwhile: by a run that begins or ends in another thread, or by a part of the hook that
switches itself off after a fault. So torch gets one pre-hook and one post-hook, which stay from the
first listener to the last and call all listeners. torch.compile does not trace them.
"""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.wrapping.untraced import untraced
from runwatch_hooks.wrapping.wraps import Arguments, Keywords

StepHook = Callable[[Optimizer, Arguments, Keywords], tuple[Arguments, Keywords] | None]
"""Before a step, it may return changed arguments; after a step, its result is ignored."""

_STEP: Final = "profile_hook_step.<locals>.wrapper"
"""Qualified name of torch's wrapper around `step`, which calls the hooks."""


class _Stand:
    """The listeners before steps, or those after steps, in the order of registration."""

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
