"""A multiplier on the learning rate that works with every scheduler.

Writing `group["lr"] *= 0.5` once would last under recursive schedulers, but be overwritten by the
next step of closed-form ones (LambdaLR, OneCycle). Here the schedule's value stays in the group,
and is replaced by the scaled one only while the optimizer steps (`scaled_rates`). The old value is
put back rather than divided, so nothing drifts.

Checkpoints and `get_last_lr()` show the schedule's value. AdamW's decay is lr x weight_decay, so it
shrinks too.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim import Optimizer, Rprop
from torch.utils.hooks import RemovableHandle

from runwatch_hooks.actions.errors import LrScaleError
from runwatch_hooks.actions.scaled_rates import Group, ScaledRates
from runwatch_hooks.faults import Faults
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.seeing.known_optimizers import steps_as_torchs_own
from runwatch_hooks.wrapping.close_hooks import CloseHandle, hear_close_to_steps
from runwatch_hooks.wrapping.graph_capture import is_capturing
from runwatch_hooks.wrapping.nested_steps import NestedSteps
from runwatch_hooks.wrapping.step_hooks import (
    StepHandle,
    hear_before_steps,
    is_under_way,
    is_within_another_step_of,
)
from runwatch_hooks.wrapping.uncopied import Uncopied
from runwatch_hooks.wrapping.wraps import Arguments, Keywords

log = OwnLog(__name__)

_AVERAGING_KEYS: Final = frozenset({"weight_sum", "d", "d_coef"})
"""Group keys of schedule-free optimizers, Prodigy and D-Adaptation, which use the rate inside their
averages. Not checked for torch's own optimizers: none does so, but its Adafactor has a clipping
threshold called `d`."""


class LrScale:
    """The multiplier for the given optimizers, and any later one that steps the modules'
    parameters.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer] = (),
        modules: Mapping[str, nn.Module] | None = None,
        *,
        on_new: Callable[[Optimizer], None] = lambda optimizer: None,
        faults: Faults | None = None,
    ) -> None:
        """`on_new` is called with each later optimizer, before the first step of it that is
        seen."""
        self._faults = faults or Faults()
        self._scale = 1.0
        self._modules = tuple((modules or {}).values())
        self._ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._scaled: WeakKeyDictionary[Optimizer, ScaledRates] = WeakKeyDictionary()
        self._nesting = NestedSteps()
        self._captured: WeakKeyDictionary[Optimizer, float] = WeakKeyDictionary()
        """Optimizer -> the scale at which its step was captured into a CUDA graph."""
        self._notices: list[str] = []
        self._on_new = on_new
        for optimizer in optimizers:
            self._ours[optimizer] = True
        self._handles: tuple[StepHandle | CloseHandle, ...] = ()
        self._savings: WeakKeyDictionary[Optimizer, RemovableHandle] = WeakKeyDictionary()
        """Handles of the `state_dict` hooks on optimizers that were scaled."""
        self._pid = os.getpid()

    def install(self) -> None:
        """Scale learning rates during optimizer steps from now on."""
        self._handles = (
            hear_before_steps(self._hear_first),
            hear_close_to_steps(self._hear_before, self._hear_after, list(self._ours)),
        )

    @property
    def scale(self) -> float:
        """The multiplier in force."""
        return self._scale

    def set(self, scale: float) -> None:
        """Set the multiplier, from the next step on. Raises LrScaleError like `check`."""
        self.check(scale)
        self.settle()
        self._scale = scale
        for optimizer in list(self._captured.keys()):
            self._tell_captured(optimizer)

    def check(self, scale: float) -> None:
        """Raises LrScaleError if the scale is not positive and finite, or cannot be applied to one
        of the optimizers."""
        if not (math.isfinite(scale) and scale > 0):
            raise LrScaleError(f"scale: found {scale}, wanted a finite number above 0")
        if scale != 1.0:
            for optimizer, is_ours in self._ours.items():
                if is_ours:
                    _check_scalable(optimizer)

    def take_notices(self) -> list[str]:
        """Messages about steps that the scale does not reach, since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def settle(self) -> None:
        """Put back the schedule's values where a step that raised has left scaled ones."""
        for optimizer in list(self._scaled.keys()):
            if not is_under_way(optimizer):  # a signal handler may call this during a step
                self._put_back(optimizer)

    def close(self) -> None:
        """Stop scaling, and put all values back."""
        for optimizer in list(self._scaled.keys()):
            self._put_back(optimizer)
        for handle in (*self._handles, *self._savings.values()):
            handle.remove()

    def _hear_first(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        """Called before the program's own hooks, which must see the schedule's rate."""
        with self._faults.guard("lr scale"):
            if optimizer in self._scaled and not is_within_another_step_of(optimizer):
                self._put_back(optimizer)  # after a step that raised

    def _hear_saving(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Called when a `state_dict` is made. During a step, or after one that raised, the group
        holds the scaled rate, but the saved state must hold the schedule's."""
        with self._faults.guard("lr scale"):
            if (scaled := self._scaled.get(optimizer)) is not None:
                scaled.put_into(state_dict["param_groups"], optimizer.param_groups)

    def _hear_before(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            try:
                self._before_step(optimizer)
            except Exception:
                self._put_back(optimizer)  # all groups at the schedule's rate, rather than some
                raise

    def _hear_after(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("lr scale"):
            self._after_step(optimizer)

    def _before_step(self, optimizer: Optimizer) -> None:
        # A forked child trains by itself, with the rate that it sees.
        if os.getpid() != self._pid or not self._is_ours(optimizer):
            return
        if is_capturing():
            self._captured[optimizer] = self._scale
        if self._scale != 1.0 and self._nesting.enter(optimizer):
            self._put_in(optimizer)

    def _after_step(self, optimizer: Optimizer) -> None:
        if self._scaled and self._nesting.leave(optimizer):
            self._put_back(optimizer, has_ended=True)

    def _put_in(self, optimizer: Optimizer) -> None:
        in_force = list(self._scaled.values())
        groups = cast("list[Group]", optimizer.param_groups)
        # An optimizer that delegates its step shares its groups with the inner one.
        plain = [one for one in groups if not any(scaled.holds(one) for scaled in in_force)]
        scaled = self._scaled[optimizer] = ScaledRates()
        scaled.put_in(plain, self._scale)
        if optimizer not in self._savings:
            hear_saving = optimizer.register_state_dict_post_hook
            self._savings[optimizer] = hear_saving(Uncopied(self._hear_saving), prepend=True)

    def _put_back(self, optimizer: Optimizer, *, has_ended: bool = False) -> None:
        scaled = self._scaled.get(optimizer)
        if scaled is not None:
            scaled.put_back(has_ended=has_ended)
            # Last: if an interrupt comes before, `settle` does it again.
            del self._scaled[optimizer]

    def _tell_captured(self, optimizer: Optimizer) -> None:
        captured = self._captured[optimizer]
        if captured != self._scale:
            notice = (
                f"lr_scale {self._scale:g} does not reach a step of {type(optimizer).__name__} "
                f"that a CUDA graph holds: replays go by {captured:g} until it is captured anew"
            )
            log.warning(notice)
            self._notices.append(notice)

    def _is_ours(self, optimizer: Optimizer) -> bool:
        known = self._ours.get(optimizer)
        if known is None:
            watched = {id(p) for module in self._modules for p in module.parameters()}
            known = any(
                id(parameter) in watched
                for group in cast("list[dict[str, list[Tensor]]]", optimizer.param_groups)
                for parameter in group["params"]
            )
            self._ours[optimizer] = known
            if known:
                self._on_new(optimizer)
        return known


def _check_scalable(optimizer: Optimizer) -> None:
    name = type(optimizer).__name__
    if isinstance(optimizer, Rprop):
        raise LrScaleError(
            f"{name}: its learning rate is the size of its first step alone, and the sizes that "
            "follow come from the gradients' signs: scaling it would change nothing"
        )
    keys = frozenset[str]() if steps_as_torchs_own(optimizer) else _AVERAGING_KEYS
    for index, group in enumerate(cast("list[Group]", optimizer.param_groups)):
        rate = group.get("lr")
        if not isinstance(rate, (Real, Tensor)):
            raise LrScaleError(f"{name}, group {index}: found lr {rate!r}, wanted a number")
        averaging = sorted(keys & group.keys())
        if averaging:
            raise LrScaleError(
                f"{name}, group {index}: uses its learning rate inside its averages "
                f"({averaging[0]!r}), so that scaling it would change what they mean"
            )
