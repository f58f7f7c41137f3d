"""The places in torch where a gradient can be seen before it is changed, and how they are undone.

The optimizers' own global hooks see every step. Clipping and loss scaling need more: after a
clip with a NaN every gradient is NaN, and a step that the scaler skips fires no hook. So the
two functions that clipping consists of, and two methods of the scaler, are wrapped where torch
looks them up at call time; a `clip_grad_norm_` that was imported by name long ago is seen too.

Nothing is kept in a module of ours: the wrap that stands in torch knows its listeners, and when
the last one leaves, torch is as it was.
"""

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MethodType, ModuleType
from typing import Any, Final, Protocol, cast

import torch
from torch.nn import utils as nn_utils
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Listener = Callable[[Arguments, Keywords], None]
OptimizerListener = Callable[[Optimizer, Arguments, Keywords], None]


class Observer(Protocol):
    """What wants to know. None of these may raise."""

    def before_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None: ...
    def after_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None: ...
    def before_total_norm(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_clip(self, args: Arguments, kwargs: Keywords) -> None: ...
    def after_unscale(self, args: Arguments, kwargs: Keywords) -> None: ...
    def before_scaler_step(self, args: Arguments, kwargs: Keywords) -> None: ...
    def after_scaler_step(self, args: Arguments, kwargs: Keywords) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Ears:
    """What one observer has at one wrap."""

    before: Listener | None = None
    after: Listener | None = None


class Wrap:
    """Stands in for a function of torch: tells its listeners, and calls it unchanged."""

    def __init__(self, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self.original: Final = original
        self.ears: tuple[_Ears, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # traced: what we did here would become a graph break
            return self.original(*args, **kwargs)
        ears = self.ears
        args = tuple(_readable(arg) for arg in args)
        kwargs = {name: _readable(arg) for name, arg in kwargs.items()}
        for ear in ears:
            if ear.before is not None:
                ear.before(args, kwargs)
        result = self.original(*args, **kwargs)
        for ear in ears:
            if ear.after is not None:
                ear.after(args, kwargs)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class Patches:
    """One observer's hold on torch. Installing and removing may be repeated at will."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._handles: list[RemovableHandle] = []
        self._held: list[tuple[ModuleType | type, str, Wrap, _Ears]] = []
        self._pid = 0

    @property
    def is_installed(self) -> bool:
        return bool(self._handles)

    def install(self) -> None:
        if self.is_installed:
            return
        self._pid = os.getpid()
        see = self._observer
        pre = _untraced(self._guarded_hook(see.before_optimizer_step))
        post = _untraced(self._guarded_hook(see.after_optimizer_step))
        self._handles = [
            register_optimizer_step_pre_hook(pre),
            register_optimizer_step_post_hook(post),
        ]
        total_norm = _Ears(before=self._guarded(see.before_total_norm))
        clip = _Ears(before=self._guarded(see.before_clip))
        for module, prefix in ((clip_grad, "_"), (nn_utils, "")):
            self._hold(module, f"{prefix}get_total_norm", total_norm)
            self._hold(module, f"{prefix}clip_grads_with_norm_", clip)
        scaler = torch.amp.GradScaler
        self._hold(scaler, "unscale_", _Ears(after=self._guarded(see.after_unscale)))
        self._hold(
            scaler,
            "step",
            _Ears(
                before=self._guarded(see.before_scaler_step),
                after=self._guarded(see.after_scaler_step),
            ),
        )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for owner, name, wrap, ears in self._held:
            wrap.ears = tuple(one for one in wrap.ears if one is not ears)
            # Somebody else may have wrapped our wrap: then it stays, and tells nobody.
            if not wrap.ears and vars(owner).get(name) is wrap:
                setattr(owner, name, wrap.original)
        self._held = []

    def _hold(self, owner: ModuleType | type, name: str, ears: _Ears) -> None:
        found = vars(owner).get(name)
        if not callable(found):  # another version of torch: we see less, and training goes on
            return
        wrap = found if isinstance(found, Wrap) else Wrap(found)
        setattr(owner, name, wrap)
        wrap.ears = (*wrap.ears, ears)
        self._held.append((owner, name, wrap, ears))

    def _guarded(self, listener: Listener) -> Listener:
        """The listener, silent in a process that was forked from ours."""

        def listen(args: Arguments, kwargs: Keywords) -> None:
            if os.getpid() == self._pid:
                listener(args, kwargs)

        return listen

    def _guarded_hook(self, listener: OptimizerListener) -> OptimizerListener:
        def listen(optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
            if os.getpid() == self._pid:
                listener(optimizer, args, kwargs)

        return listen


def _untraced(listener: OptimizerListener) -> OptimizerListener:
    """Left alone by torch.compile: in a compiled optimizer step our Python would be traced, and
    recompiled whenever its state changes, up to the limit of 8."""
    disable = cast("Callable[[OptimizerListener], OptimizerListener]", torch.compiler.disable)
    return disable(listener)


def _readable(argument: object) -> object:
    """An iterator can be read once only: of a list, the original and we both can."""
    if isinstance(argument, Iterator):
        return list(cast("Iterator[object]", argument))
    return argument
