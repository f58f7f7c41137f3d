"""The places in torch where gradients can be read before they are changed.

Torch's global optimizer hooks see every step. Clipping and loss scaling need more: after a clip
with a NaN every gradient is NaN, and a step that the scaler skips runs no hook. So the two
functions that clipping consists of, and two methods of the scaler, are wrapped where torch looks
them up when called. That also covers a `clip_grad_norm_` that the program imported by name before
`attach`. Any other clip imported that way is seen by the grouping of gradients that it begins with.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Final, Protocol

import torch
from torch.nn import utils as nn_utils
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from runwatch_hooks.ranks.shards import clipping_module, zero_types
from runwatch_hooks.step.optimizer_steps import StepHandle, hear_after_steps, hear_before_steps
from runwatch_hooks.step.torch_hooks import ENGINE, TorchSubscriptions, is_capturing, untraced_wrap
from runwatch_hooks.wraps import Arguments, Keywords, Listener, Listeners, Subscriptions, Wrap

# Detects clips that no wrapper sees, because the program imported them by name before `attach`.
# Every clip of torch first groups the gradients, by a function that is looked up when it is called
# and can therefore be wrapped at any time.

GROUPING: Final = "_group_tensors_by_device_and_dtype"
"""The grouping function in `torch.nn.utils.clip_grad`. It takes a list of lists of tensors, of
which the first holds the gradients."""
_FILE: Final = clip_grad.__file__
_READS: Final = "_get_total_norm"
_HEARD: Final = Wrap.__call__.__code__


def is_unheard_clip() -> bool:
    """Whether the grouping function that calls this was called by a clip without a wrapper.
    Decided by the call stack."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename != _FILE:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == _READS:
        return False
    while frame is not None and frame.f_code.co_filename == _FILE:  # includes the `no_grad` wrapper
        frame = frame.f_back
    return frame is None or frame.f_code is not _HEARD


OptimizerListener = Callable[[Optimizer, Arguments, Keywords], None]


class Observer(Protocol):
    """Receives the calls. No method may raise."""

    def before_backward(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None: ...
    def after_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None: ...
    def before_total_norm(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_clip(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_own_clip(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_unheard_clip(self, args: Arguments, kwargs: Keywords) -> None: ...
    def after_unscale(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_scaler_step(self, args: Arguments, kwargs: Keywords) -> None: ...
    def after_scaler_step(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_zero_step(self, args: Arguments, kwargs: Keywords) -> None: ...
    def after_zero_step(self, args: Arguments, kwargs: Keywords) -> None: ...


class Patches:
    """One observer's hooks and wrappers. Installing and removing may be repeated."""

    def __init__(
        self, observer: Observer, meter: AbstractContextManager[None] | None = None
    ) -> None:
        """`meter` is a context manager around each call of the observer, to measure its cost."""
        self._observer = observer
        self._meter = meter or nullcontext()
        self._handles: list[StepHandle] = []
        self._subscriptions = TorchSubscriptions()
        self._engine = Subscriptions()
        self._pid = 0

    @property
    def is_installed(self) -> bool:
        return bool(self._handles)

    def install(self) -> None:
        if self.is_installed:
            return
        self._pid = os.getpid()
        see = self._observer
        self._handles = [
            hear_before_steps(self._guarded_hook(see.before_optimizer_step)),
            hear_after_steps(self._guarded_hook(see.after_optimizer_step)),
        ]
        self._engine = Subscriptions(untraced_wrap())
        self._engine.listen(
            torch.autograd, ENGINE, Listeners(before=self._guarded(see.before_backward))
        )
        total_norm = Listeners(before=self._guarded(see.before_total_norm))
        clip = Listeners(before=self._guarded(see.before_clip))
        by_itself = Listeners(before=self._guarded(see.before_own_clip))
        unheard = self._guarded(see.before_unheard_clip)
        for module, prefix in ((clip_grad, "_"), (nn_utils, "")):
            self._subscriptions.listen(module, f"{prefix}get_total_norm", total_norm)
            self._subscriptions.listen(module, f"{prefix}clip_grads_with_norm_", clip)
            self._subscriptions.listen(module, "clip_grad_value_", by_itself)
        self._subscriptions.listen(
            clip_grad, GROUPING, Listeners(before=_of_unheard_clips(unheard))
        )
        scaler = torch.amp.GradScaler
        self._subscriptions.listen(
            scaler, "unscale_", Listeners(after=self._guarded(see.after_unscale))
        )
        self._subscriptions.listen(
            scaler,
            "step",
            Listeners(
                before=self._guarded(see.before_scaler_step),
                after=self._guarded(see.after_scaler_step),
            ),
        )
        zero_step = Listeners(
            before=self._guarded(see.before_zero_step), after=self._guarded(see.after_zero_step)
        )
        for kind in zero_types():
            self._subscriptions.listen(kind, "step", zero_step)
        if (engine := clipping_module()) is not None:
            self._subscriptions.listen(engine, "clip_grad_norm_", by_itself)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._subscriptions.release()
        self._engine.release()

    def _guarded(self, listener: Listener) -> Listener:
        """The listener, called only while `_hears`."""

        def listen(args: Arguments, kwargs: Keywords) -> None:
            if self._hears():
                with self._meter:
                    listener(args, kwargs)

        return listen

    def _guarded_hook(self, listener: OptimizerListener) -> OptimizerListener:
        def listen(optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
            if self._hears():
                with self._meter:
                    listener(optimizer, args, kwargs)

        return listen

    def _hears(self) -> bool:
        """False in a forked child process, and while a CUDA graph is being captured."""
        return os.getpid() == self._pid and not is_capturing()


def _of_unheard_clips(listener: Listener) -> Listener:
    def listen(args: Arguments, kwargs: Keywords) -> None:
        if is_unheard_clip():
            listener(args, kwargs)

    return listen
