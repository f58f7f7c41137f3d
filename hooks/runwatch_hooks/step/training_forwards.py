"""Sees that the next step is under way, so that what is logged is recorded for the right step.

What a program logs after `watch.step` belongs to the step that ended, and what it logs once a
forward pass in training mode has begun, to the one under way. The modules have a hook for this only
once the program logs something, and only the models themselves, not their parts.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.faults import Faults
from runwatch_hooks.step.torch_hooks import Uncopied
from runwatch_hooks.wraps import Arguments, Keywords, Listeners, Subscriptions

CloseRow = Callable[[int, int], None]
"""Called with a step and its segment: nothing more is logged for it."""

_SCRIPTING: Final = "torch.jit._recursive"
_READS_HOOKS: Final = "get_hook_stubs"


class TrainingForwards:
    """The forward passes of one run's models. A model that runs inside compiled code, or not by its
    `__call__`, is not heard: autograd's count of operations then shows that one has begun."""

    def __init__(
        self, modules: Mapping[str, nn.Module], faults: Faults, close_row: CloseRow
    ) -> None:
        self._modules: Sequence[nn.Module] = tuple(modules.values())
        self._faults = faults
        self._close_row = close_row
        self._handles: list[RemovableHandle] = []
        self._scripting = Subscriptions()
        self._is_off = False
        self._hears = False
        """Whether any forward pass was heard."""
        self._has_begun = False
        self._ended: tuple[int, int] | None = None
        self._thread = 0
        self._num_operations = 0

    def end_step(self, step: int, segment: int) -> None:
        """A step has ended in the calling thread."""
        self._ended = step, segment
        self._has_begun = False
        self._thread = threading.get_ident()
        self._num_operations = _num_operations()

    def note_begun(self) -> None:
        """A forward pass in training mode has begun, or the backward pass after it."""
        if not self._has_begun and self._ended is not None:
            self._has_begun = True
            self._close_row(*self._ended)

    def step_of_log(self, next_step: int, segment: int) -> tuple[int, int]:
        """The step and the segment to which belongs what is logged now: the step under way, also if
        none has ended yet, or the one that ended last."""
        if not self._handles and not self._is_off:
            with self._faults.guard("forward", self.remove):
                self._listen()
        if not self._has_begun and self._has_computed():
            self.note_begun()
        if self._ended is None or self._has_begun:
            return next_step, segment
        return self._ended

    def remove(self) -> None:
        self._is_off = True
        self._hears = False
        self._step_aside()

    def _listen(self) -> None:
        for module in self._modules:
            if _can_be_heard(module):
                hear = Uncopied(self._hear)
                self._handles.append(module.register_forward_pre_hook(hear))
        # torch.jit.script would compile the hook too, and raise.
        aside = Listeners(before=lambda args, kwargs: self._step_aside(args, kwargs))
        self._scripting.listen(import_module(_SCRIPTING), _READS_HOOKS, aside)

    def _step_aside(self, args: Arguments = (), kwargs: Keywords | None = None) -> None:
        """Take off the hooks; what is logged next puts them on again."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._scripting.release()

    def _hear(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():
            return
        if module.training and not self._has_begun:
            with self._faults.guard("forward", self.remove):
                self._hears = True
                self.note_begun()

    def _has_computed(self) -> bool:
        """Whether this thread, which trains, has computed what has a gradient since the last step,
        and no forward pass can be heard."""
        if self._hears or threading.get_ident() != self._thread:
            return False
        is_training = any(module.training for module in self._modules)
        return is_training and _num_operations() != self._num_operations


def _num_operations() -> int:
    """Of all operations with a gradient that this thread has computed so far."""
    number: int = cast(Any, torch.autograd)._get_sequence_nr()
    return number


def _can_be_heard(module: nn.Module) -> bool:
    """Not if it is scripted or compiled in place: a new hook may then cost a compilation."""
    is_compiled = getattr(module, "_compiled_call_impl", None) is not None
    return not (is_compiled or isinstance(module, torch.jit.ScriptModule))
