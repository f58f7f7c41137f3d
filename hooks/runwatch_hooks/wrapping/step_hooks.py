"""Where all that we want to hear of optimizers' steps stands among torch's hooks, as one of them.

Torch goes over its global hooks at each step, and raises into the training where one is added or
removed meanwhile: by a run that begins or ends in another thread, or by a part of ours that a fault
switches off from within. Of ours it sees one, from the first that comes to the last that leaves.
None of them is traced where a step is compiled.
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
"""Before a step it may return other arguments for it; after one what it returns is ignored."""

_STEP: Final = "profile_hook_step.<locals>.wrapper"
"""What torch puts around `step`, and calls the hooks from."""


class _Stand:
    """All of ours at one of the two places, in the order in which they came."""

    def __init__(self, register: Callable[..., RemovableHandle]) -> None:
        self._register = register
        self._handle: RemovableHandle | None = None
        self._hooks: tuple[StepHook, ...] = ()
        self._changing = threading.RLock()  # a signal handler may end a run within

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
        for hook in self._hooks:  # a tuple of its own, whoever comes or leaves meanwhile
            told = hook(optimizer, args, kwargs)
            if told is not None:
                changed = args, kwargs = told
        return changed


_BEFORE: Final = _Stand(register_optimizer_step_pre_hook)
_AFTER: Final = _Stand(register_optimizer_step_post_hook)
"""Of all runs of a process, as torch's own are."""


class StepHandle:
    """One hook's place; `remove` may be repeated."""

    def __init__(self, stand: _Stand, hook: StepHook) -> None:
        self._stand = stand
        self._hook = hook
        stand.add(hook)

    def remove(self) -> None:
        self._stand.drop(self._hook)


def hear_before_steps(hook: StepHook) -> StepHandle:
    """Be told before each step of each optimizer, in whatever thread."""
    return StepHandle(_BEFORE, hook)


def hear_after_steps(hook: StepHook) -> StepHandle:
    """Be told after each step that did not raise."""
    return StepHandle(_AFTER, hook)


def is_within_another_step_of(optimizer: Optimizer) -> bool:
    """Whether the step from which a hook is called, of this optimizer or of another, runs within
    one of this. False where it was compiled: then none of them has a frame of torch's."""
    step = _next_step_above(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    return step is not None and _is_of(optimizer, step.f_back)


def is_under_way(optimizer: Optimizer) -> bool:
    """Whether a step of the optimizer has begun in any thread, its hooks included, and has not
    ended. False of one that was compiled."""
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
