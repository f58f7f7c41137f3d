"""Follows each optimizer step of a run and reads its gradients at the right moment.

They must be complete and unscaled, and not yet clipped. So they are read at the first of three
places that a step passes: after the scaler has unscaled them, before a clip, or before the
optimizer steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.detail import Detail
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import Governor
from runwatch_hooks.ranks.shards import ZeroOptimizer, stepped_by, total_norm_of
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.step.clips import Patches
from runwatch_hooks.step.layers import KnownOptimizer, at_rest, optimizer_parameters
from runwatch_hooks.step.model import ModelStatistics
from runwatch_hooks.step.numbers import number
from runwatch_hooks.step.observer import Clip, Layers, Observers, OptimizerStep
from runwatch_hooks.step.optimizer_steps import HandedSteps, NestedSteps, closure_of, is_rehearsal
from runwatch_hooks.step.optimizers import WatchedOptimizers
from runwatch_hooks.step.step_reading import OpenStep, Reading, Stage
from runwatch_hooks.step.torch_hooks import argument, tensors_at
from runwatch_hooks.step.training_forwards import CloseRow, TrainingForwards
from runwatch_hooks.step.training_thread import TrainingThread
from runwatch_hooks.wraps import Arguments, Keywords


class Probe:
    """Observes the optimizer steps of one run. Never raises: after a fault it removes itself."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        faults: Faults,
        *,
        lr_scale: Callable[[], float] = lambda: 1.0,
        rank: int = 0,
        on_broken: Callable[[], None] = lambda: None,
        detail: Detail | None = None,
        governor: Governor | None = None,
        close_row: CloseRow = lambda step, segment: None,
        observers: Observers | None = None,
    ) -> None:
        """`lr_scale` returns the multiplier that applies to the groups' learning rates during a
        step.

        `on_broken` is called before an optimizer steps with gradients known to be non-finite; on an
        accelerator that is not known without a sync. It must not raise. `detail` measures
        histograms when they were asked for. `governor` decides how much of a step is read; without
        one, everything. `close_row` is called when the step after a row's has begun.
        """
        self._on_broken = on_broken
        self.on_first_step: Callable[[Sequence[NamedTensor]], None] | None = None
        """Called before an optimizer changes `named` for the first time. It must not raise."""
        self._faults = faults
        self.observers: Final = observers or Observers((), faults)
        self._lr_scale = lr_scale
        self._statistics = ModelStatistics(modules, optimizers, faults, rank, detail)
        self._optimizers = WatchedOptimizers(optimizers, self._statistics)
        self._patches = Patches(self, None if governor is None else governor.meter)
        self._step = OpenStep(self._statistics, self._optimizers, governor)
        self._has_scaler = False
        self._is_left_out = False
        """`scaler.step` was called, and the optimizer has not stepped yet."""
        self._nesting = NestedSteps()
        self._handed = HandedSteps()
        self._thread = TrainingThread()
        self.forwards: Final = TrainingForwards(modules, faults, close_row)
        self._reset()
        self.observers.attach(Layers(self._statistics.gradient_at, self._slots_of_all))

    @property
    def named(self) -> Sequence[NamedTensor]:
        """All trained tensors, in the same order on every rank."""
        return self._statistics.named

    @property
    def optimizers(self) -> Sequence[KnownOptimizer]:
        """Those given, and those that were seen to step the run's layers since."""
        return self._optimizers.known

    @property
    def is_broken(self) -> bool:
        """Whether gradients read in the current step are known to be non-finite."""
        return self._statistics.is_broken

    def install(self) -> None:
        self._patches.install()

    def remove(self) -> None:
        self._patches.remove()
        self.observers.lose_steps()
        self.forwards.remove()

    def take(self) -> Reading:
        """The reading of the step that has ended. The next step begins."""
        self._thread.end_row()
        self._step.note({"optimizer_steps": float(self._num_optimizer_steps)})
        if self._has_scaler and "skipped" not in self._step.numbers:
            self._step.note({"skipped": 0.0})
        reading = self._step.close(self._optimizers.take_changes())
        self._reset()
        return reading

    def _reset(self) -> None:
        self._begun: set[int] = set()
        self._with_closure: set[int] = set()
        self._num_optimizer_steps = 0

    # Callbacks from torch, in the order in which a step runs them.

    def before_backward(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("backward", self.remove):
            if self._thread.ends_rows_here():
                accumulates = kwargs.get("accumulate_grad", True)
                self.observers.on_backward(accumulates=accumulates)
                if accumulates:
                    self.forwards.note_begun()

    def after_unscale(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("unscale_", self.remove):
            optimizer = argument(args, kwargs, 1, "optimizer")
            if self._steps_here(optimizer) and (slots := self._step.slots_of(optimizer)):
                self.observers.on_unscale(slots)
                self._step.read_unscaled(slots)

    def before_total_norm(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("total_norm", self.remove):
            # Whether these gradients belong to the run could only be found out by reading its
            # `grad` attributes, which is not safe from another thread.
            if not self._thread.is_here(lambda: False):
                return
            grads = tensors_at(args, kwargs, 0, "tensors")
            self._step.read(self._step.slots_of_grads(grads), Stage.PRECLIP)

    def before_clip(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("clip", self.remove):
            tensors = tensors_at(args, kwargs, 0, "parameters")
            if not self._trains_here(tensors):
                return
            slots = self._step.slots_of_tensors(tensors)
            if slots:
                max_norm = float(argument(args, kwargs, 1, "max_norm"))
                total_norm: Tensor = argument(args, kwargs, 2, "total_norm")
                self._step.read_clipped(slots, max_norm, total_norm)
                self.observers.on_clip(Clip(slots, max_norm, self._has_scaler))

    def before_own_clip(self, args: Arguments, kwargs: Keywords) -> None:
        """Before a clip with no known coefficient, as it computes no norm with torch: by value, or
        DeepSpeed's at stage 0."""
        with self._faults.guard("own clip", self.remove):
            tensors = tensors_at(args, kwargs, 0, "parameters")
            if not self._trains_here(tensors):
                return
            self._step.read(self._step.slots_of_tensors(tensors), Stage.PRECLIP)

    def before_unheard_clip(self, args: Arguments, kwargs: Keywords) -> None:
        """Before a clip that the program imported by name before `attach`. Of its arguments only
        the gradients are known."""
        with self._faults.guard("unheard clip", self.remove):
            if not self._thread.is_here(lambda: False):
                return
            (grads,) = argument(args, kwargs, 0, "tensorlistlist")
            self._step.read(self._step.slots_of_grads(grads), Stage.PRECLIP)

    def before_scaler_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("scaler.step", self.remove):
            scaler = args[0]
            optimizer = argument(args, kwargs, 1, "optimizer")
            if not self._steps_here(optimizer):
                return
            if self._step.slots_of(optimizer) and scaler.is_enabled():
                self._has_scaler = True
                self._is_left_out = True
                scale: Tensor | None = scaler._scale  # `get_scale` would be a sync
                if scale is not None:
                    self._step.note({"loss_scale": number(scale)})

    def before_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None:
        with self._faults.guard("step", self.remove):
            if not self._steps_here(optimizer):
                return
            self._begin(optimizer_parameters(optimizer), optimizer)
            slots = self._step.slots_of(optimizer)
            if not slots or is_rehearsal(optimizer):
                return
            if not self._nesting.enter(optimizer):
                return
            is_handed = self._handed.begin(optimizer, slots)
            self._is_left_out = False
            if self._handed.hands_on(optimizer):
                return  # it is read at the inner optimizer's step
            again = is_handed or id(optimizer) in self._begun
            self._begun.add(id(optimizer))
            self._optimizers.follow(optimizer, slots, is_handed=is_handed)
            self._step.note(self._optimizers.rates_of(optimizer, self._lr_scale()))
            has_closure = closure_of(args, kwargs) is not None
            step = OptimizerStep(optimizer, slots, has_closure)
            self.observers.before_optimizer(step)
            if has_closure:
                self._with_closure.add(id(optimizer))
            else:
                self.observers.on_gradients(step)
                self._read_before_step(slots, getattr(optimizer, "grad_scale", None), again)
            self._note_bad(optimizer)
            self._step.note_at_rest(at_rest(optimizer))
            if self._step.reads_weights:
                self._statistics.before_step(slots)

    def after_optimizer_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("step", self.remove):
            if not self._nesting.leave(optimizer):
                return
            was_read = not self._handed.hands_on(optimizer)
            self._num_optimizer_steps += self._handed.end(optimizer)
            if not was_read:
                return
            slots = self._step.slots_of(optimizer)
            step = OptimizerStep(optimizer, slots, id(optimizer) in self._with_closure)
            if step.has_closure:
                self.observers.on_gradients(step)
                self._step.read(slots, Stage.CLOSURE_POST)
            self._step.note_stepped(slots)
            self.observers.after_optimizer(step)
            self._statistics.after_step()

    def after_scaler_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("scaler.step", self.remove):
            optimizer = argument(args, kwargs, 1, "optimizer")
            if not self._steps_here(optimizer):
                return
            if self._is_left_out and self._step.slots_of(optimizer):
                self._is_left_out = False
                self._step.note_skipped(1.0)  # the scaler found non-finite gradients
                self._step.note(self._optimizers.rates_of(optimizer, self._lr_scale()))

    def before_zero_step(self, args: Arguments, kwargs: Keywords) -> None:
        """Before DeepSpeed's `step`, which unscales, clips, and steps piece by piece."""
        with self._faults.guard("zero step", self.remove):
            zero: ZeroOptimizer = args[0]
            self._begin(stepped_by(zero), zero.optimizer)
            slots = self._step.slots_of_tensors(stepped_by(zero))
            if not slots:
                return
            self._step.note(self._optimizers.rates_of(zero.optimizer, self._lr_scale()))
            scale = float(zero.loss_scale)
            if scale != 1.0:
                self._has_scaler = True
                self._step.note({"loss_scale": scale})
            still_borne = torch.tensor(scale, dtype=torch.float32, device="cpu")
            self._step.read(slots, Stage.UNSCALED_PRECLIP, still_borne)
            self._statistics.before_step(slots)

    def after_zero_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("zero step", self.remove):
            zero: ZeroOptimizer = args[0]
            if not self._step.slots_of_tensors(stepped_by(zero)):
                return
            if zero.overflow:
                self._step.note_skipped(1.0)
                return
            self._num_optimizer_steps += 1
            if zero.clip_grad > 0.0:
                self._step.note_clip(zero.clip_grad, total_norm_of(zero))
            self._statistics.after_step()

    def _begin(self, stepped: Iterable[Tensor], optimizer: Optimizer) -> None:
        """The optimizer is about to step these tensors, on whichever rank they are measured."""
        if self.on_first_step is None:
            return
        ours = {id(one.tensor) for one in self.named}
        if any(id(one) in ours for one in stepped) and not is_rehearsal(optimizer):
            begin, self.on_first_step = self.on_first_step, None
            begin(self.named)

    def _read_before_step(self, slots: Sequence[int], scale: Tensor | None, again: bool) -> None:
        if scale is not None:
            self._step.read_scaled(slots, scale)
            return
        # Of several steps in one row the last counts, even if an earlier one raised.
        read = self._step.read if again else self._step.read_unread
        read(slots, Stage.PRESTEP)

    def _note_bad(self, optimizer: Optimizer) -> None:
        found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
        if found_inf is not None:  # a fused optimizer skips the step itself, on the device
            self._step.note_skipped(number(found_inf))
        elif self._statistics.is_broken:
            self._on_broken()

    def _slots_of_all(self) -> list[Sequence[int]]:
        living = (one.optimizer for one in self._optimizers.known)
        return [self._statistics.slots_of(one) for one in living if one is not None]

    def _steps_here(self, optimizer: Optimizer) -> bool:
        return self._thread.is_here(lambda: self._step.holds_any(optimizer_parameters(optimizer)))

    def _trains_here(self, tensors: Sequence[Tensor]) -> bool:
        return self._thread.is_here(lambda: self._step.holds_any(tensors))
