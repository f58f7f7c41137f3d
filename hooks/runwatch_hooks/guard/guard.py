"""Turns an optimizer step with non-finite gradients into a no-op and, on request, also one with
gradients far outside their recent history (`norm_past`).

Alerts and commands come some steps late, when a NaN is already in every weight and moment. Here the
step itself is stopped, without a sync:

- A fused optimizer (Adam, AdamW, SGD, Adagrad) reads `found_inf` on the device, as with a gradient
  scaler: parameters, moments and step counts stay as they are.
- In host memory the answer is known at once. Torch's optimizers skip parameters without a gradient,
  so the gradients are hidden during the step. With other optimizers, what the step has changed is
  undone (`undoing`).

If a step evaluates a closure, its gradients come from there, so it is judged after the closure.

Anything else on an accelerator would change the moments or need a second copy of them, so other
optimizers are refused there. Sharded parameters are refused too: a rank sees only its part, and a
common decision would be a collective at every step. Replicas (DDP) have the same gradients after
the reduction and the same history, so they decide alike.
"""

import os
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.guard.look import Look
from runwatch_hooks.guard.newborn import about_to_have_momentum, blank_momentum
from runwatch_hooks.guard.objections import (
    asks_the_device,
    objection_to,
    objection_to_closures,
)
from runwatch_hooks.guard.outliers import Outliers
from runwatch_hooks.guard.tally import Number, Tally
from runwatch_hooks.guard.undoing import Before, passes_over_none
from runwatch_hooks.statistics.readback import divisor_of, to_device
from runwatch_hooks.step.layers import optimizer_parameters
from runwatch_hooks.step.optimizer_steps import (
    CloseHandle,
    NestedSteps,
    StepHandle,
    closure_of,
    followed_by,
    hear_before_steps,
    hear_close_to_steps,
    is_under_way,
    is_within_another_step_of,
)
from runwatch_hooks.step.torch_hooks import is_capturing
from runwatch_hooks.wraps import Arguments, Keywords

GUARDED: Final = "guarded_steps"
OUTLIERS: Final = "guarded_outliers"
RELEARNED: Final = "guard_relearned"


class Guard:
    """Guards the given optimizers, and any later one that steps a parameter of the modules."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        faults: Faults,
        outliers: Outliers | None = None,
    ) -> None:
        """With `outliers`, steps with gradients far outside their history are guarded as well."""
        self._outliers = outliers
        self._modules = tuple(modules.values())
        self._faults = faults
        self._objections: WeakKeyDictionary[Optimizer, str | None] = WeakKeyDictionary()
        """Optimizer -> why it is not guarded; empty if it is, None if it is not the run's."""
        for optimizer in optimizers:
            self._objections[optimizer] = objection_to(optimizer)
        self._nesting = NestedSteps()
        self._hidden: WeakKeyDictionary[Optimizer, list[tuple[Tensor, Tensor]]]
        self._hidden = WeakKeyDictionary()
        self._undone: WeakKeyDictionary[Optimizer, Before] = WeakKeyDictionary()
        self._flagged: WeakKeyDictionary[Optimizer, tuple[Tensor, list[Tensor]]]
        self._flagged = WeakKeyDictionary()
        """Optimizer -> the flag given to it, and parameters whose momentum this step creates."""
        self._look = Look(faults)
        self._tally = Tally(GUARDED, *(() if outliers is None else (OUTLIERS, RELEARNED)))
        self._notices: list[str] = []
        self._handles: tuple[StepHandle | CloseHandle, ...] = ()
        self._pid = os.getpid()

    def install(self) -> None:
        """Install hooks closest to the step, so that the program's own hooks and the probe see the
        gradients as they are."""
        if self._outliers is not None:
            self._outliers.clipped.install()
        self._handles = (
            hear_before_steps(self._hear_first),
            hear_close_to_steps(self._before_step, self._after_step, list(self._objections)),
        )

    def remove(self) -> None:
        """Stop guarding."""
        handles, self._handles = self._handles, ()
        for handle in handles:
            handle.remove()
        self._undone.clear()
        if self._outliers is not None:
            self._outliers.clipped.remove()
        for optimizer in list(self._hidden.keys()):
            if is_under_way(optimizer):
                self._put_back(optimizer)
        self._hidden.clear()
        for optimizer in list(self._flagged.keys()):
            self._take_left_flag(optimizer)

    def state_dict(self) -> dict[str, object]:
        """The norm history as JSON values; empty if outliers are not judged."""
        return {} if self._outliers is None else self._outliers.plain_state()

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        """Restore the norm history, if outliers are judged. Raises KeyError, TypeError or
        ValueError, with nothing changed."""
        if self._outliers is not None:
            self._outliers.load_state_dict(state_dict)

    def take(self) -> dict[str, Number]:
        """The number of guarded optimizer steps since the last call and, if outliers are judged,
        how many of them were outliers and how often a new level was accepted."""
        return self._tally.take()

    def take_notices(self) -> list[str]:
        """Messages about what is not guarded, each returned once."""
        notices, self._notices = self._notices, []
        return notices

    def _hear_first(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        """Discard what an earlier step that raised has left: its flag, and the gradients to put
        back, which the program may no longer want."""
        if os.getpid() != self._pid:
            return
        with self._faults.guard("guard", self.remove):
            left: tuple[Container[Optimizer], ...] = self._hidden, self._undone, self._flagged
            is_left = any(optimizer in one for one in left)
            if is_left and not is_within_another_step_of(optimizer):
                self._hidden.pop(optimizer, None)
                self._undone.pop(optimizer, None)
                self._take_left_flag(optimizer)

    def _before_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        """Judge the step, or return changed arguments with a closure that will."""
        if os.getpid() != self._pid:
            return None
        with self._faults.guard("guard", self.remove):
            if not self._nesting.enter(optimizer):
                return None
            closure = closure_of(args, kwargs)
            if self._objection_to(optimizer, with_closure=closure is not None) != "":
                return None
            if closure is not None:
                return followed_by(lambda: self._judge_now(optimizer), closure, args, kwargs)
            self._judge_now(optimizer)
        return None

    def _judge_now(self, optimizer: Optimizer) -> None:
        """Judge the gradients that the optimizer is about to use."""
        if self._handles:  # empty if a fault occurred while the closure ran
            with self._faults.guard("guard", self.remove), torch.no_grad():
                self._guard(optimizer)

    def _after_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        if os.getpid() != self._pid:
            return
        with self._faults.guard("guard", self.remove):
            if self._nesting.leave(optimizer):
                self._put_back(optimizer)
                if (before := self._undone.pop(optimizer, None)) is not None:
                    before.put_back(optimizer)
                told = self._take_flag(optimizer)
                if told is not None:
                    with torch.no_grad():
                        blank_momentum(optimizer, told[1], told[0])

    def _guard(self, optimizer: Optimizer) -> None:
        with_grad = _with_gradients(optimizer)
        scalers: Tensor | None = getattr(optimizer, "found_inf", None)
        flag = self._judge(optimizer, with_grad, is_scaled=scalers is not None)
        if flag is None:
            return
        asks = asks_the_device(optimizer)
        if scalers is None and not asks and flag.device.type != "cpu":
            # Since it was first checked, its parameters have moved to another device, or a loaded
            # state has changed `fused`. Reading the flag would be a sync.
            self._object(optimizer, objection_to(optimizer))
            return
        if not is_capturing():  # in a graph the flag is that of replays, which are not counted
            self._tally.add(GUARDED, flag)
        if scalers is not None:  # the scaler removes its own flag afterwards, and this one with it
            cast(Any, optimizer).found_inf = torch.maximum(scalers, to_device(flag, scalers.device))
        elif asks:
            cast(Any, optimizer).found_inf = flag
            self._flagged[optimizer] = flag, about_to_have_momentum(optimizer)
        elif bool(flag):  # no sync: everything is in host memory
            self._hold_back(optimizer, with_grad)

    def _hold_back(self, optimizer: Optimizer, with_grad: list[tuple[Tensor, Tensor]]) -> None:
        """Make the step a no-op for an optimizer without `found_inf`."""
        if not passes_over_none(optimizer):
            self._undone[optimizer] = Before(optimizer, self._modules)
            return
        self._hidden[optimizer] = with_grad
        for parameter, _ in with_grad:
            parameter.grad = None

    def _judge(
        self, optimizer: Optimizer, with_grad: Sequence[tuple[Tensor, Tensor]], *, is_scaled: bool
    ) -> Tensor | None:
        """1.0 if the step must be a no-op, else 0.0; None if there is nothing to judge.

        With a gradient scaler, which handles non-finite gradients itself, only outliers are judged.
        In a CUDA graph, outliers are not judged: each replay would use the history as it was at
        capture.
        """
        outliers = None if is_capturing() else self._outliers
        if outliers is None:
            seen = None if is_scaled else self._look.at([grad for _, grad in with_grad])
            return None if seen is None else seen.is_bad
        norm = outliers.clipped.take(parameter for parameter, _ in with_grad)
        seen = self._look.at([grad for _, grad in with_grad], wants_norm=norm is None)
        if seen is None:
            return None
        if norm is None:
            norm = seen.norm
            scale: Tensor | None = getattr(optimizer, "grad_scale", None)
            norm = norm if norm is None else norm / divisor_of(scale, norm.device)
        if norm is None:
            return seen.is_bad
        norm = to_device(norm, seen.is_bad.device)
        verdict = outliers.judge(optimizer, norm, seen.is_bad)
        self._tally.add(OUTLIERS, verdict.is_outlier)
        self._tally.add(RELEARNED, verdict.has_relearned)
        return verdict.is_outlier if is_scaled else torch.maximum(seen.is_bad, verdict.is_outlier)

    def _put_back(self, optimizer: Optimizer) -> None:
        for parameter, grad in self._hidden.pop(optimizer, ()):
            if parameter.grad is None:
                parameter.grad = grad

    def _take_flag(self, optimizer: Optimizer) -> tuple[Tensor, list[Tensor]] | None:
        """Taken in any case: another run's guard may have put its own in its place."""
        told = self._flagged.pop(optimizer, None)
        if told is not None and hasattr(optimizer, "found_inf"):
            del cast(Any, optimizer).found_inf
        return told

    def _take_left_flag(self, optimizer: Optimizer) -> None:
        """Of a step that raised. A gradient scaler may have given its own flag meanwhile, which
        always comes with its scale."""
        if hasattr(optimizer, "grad_scale"):
            self._flagged.pop(optimizer, None)
        else:
            self._take_flag(optimizer)

    def _objection_to(self, optimizer: Optimizer, *, with_closure: bool) -> str | None:
        if optimizer not in self._objections:
            known = {id(one) for module in self._modules for one in module.parameters()}
            is_ours = any(id(one) in known for one in optimizer_parameters(optimizer))
            self._object(optimizer, objection_to(optimizer) if is_ours else None)
        if self._objections[optimizer] == "" and with_closure:
            self._object(optimizer, objection_to_closures(optimizer))
        return self._objections[optimizer]

    def _object(self, optimizer: Optimizer, objection: str | None) -> None:
        self._objections[optimizer] = objection
        if objection:
            self._notices.append(f"not guarded: {objection}")


def _with_gradients(optimizer: Optimizer) -> list[tuple[Tensor, Tensor]]:
    return [(one, one.grad) for one in optimizer_parameters(optimizer) if one.grad is not None]
