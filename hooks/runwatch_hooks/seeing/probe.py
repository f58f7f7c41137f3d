"""Sees each optimizer step of a run and reads its gradients where they are whole and untouched.

That is the first of three places that a step passes: after the scaler has unscaled them, before
a clip, before the optimizer itself. What is read there is not read again in the same step, but
for a second clip (once a micro-batch, say), whose reading replaces that of the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.detail import Detail
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import EVERYTHING, Governor, Sampled
from runwatch_hooks.measuring.layer_names import NamedTensor
from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.ranks.zero import ZeroOptimizer, stepped_by, total_norm_of
from runwatch_hooks.seeing.board import Board
from runwatch_hooks.seeing.frozen_layers import FrozenLayers
from runwatch_hooks.seeing.known_optimizers import parameters_of
from runwatch_hooks.seeing.numbers import Number, lesser, number
from runwatch_hooks.seeing.omissions import Omissions
from runwatch_hooks.seeing.rehearsal import is_rehearsal
from runwatch_hooks.seeing.step_reading import Reading, Stage
from runwatch_hooks.seeing.training_thread import TrainingThread
from runwatch_hooks.seeing.turns import Turns
from runwatch_hooks.seeing.watched_optimizers import WatchedOptimizers
from runwatch_hooks.wrapping.closures import closure_of
from runwatch_hooks.wrapping.patches import Patches
from runwatch_hooks.wrapping.wraps import Arguments, Keywords


class Probe:
    """Observes the optimizer steps of one run. Raises nothing: a fault of ours ends it."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        faults: Faults,
        lr_scale: Callable[[], float] = lambda: 1.0,
        rank: int = 0,
        on_broken: Callable[[], None] = lambda: None,
        detail: Detail | None = None,
        governor: Governor | None = None,
        schedulers: Sequence[object] = (),
    ) -> None:
        """`lr_scale` is the multiplier that stands in the groups while an optimizer steps.

        `on_broken` is told before an optimizer steps with gradients that are known not to be
        finite: only those in the host's memory are, without waiting. It must not raise. `detail`
        takes histograms where they are wanted. `governor` says how much is read of which step;
        without one it is everything. Whether the `schedulers` go on is looked at after a resume.
        """
        self._governor = governor
        self._on_broken = on_broken
        self._faults = faults
        self._lr_scale = lr_scale
        self._board = Board(modules, optimizers, faults, rank, detail)
        self._optimizers = WatchedOptimizers(optimizers, self._board)
        self._patches = Patches(self, None if governor is None else governor.meter)
        self._numbers: dict[str, Number] = {}
        self._has_scaler = False
        self._turns = Turns()
        self._omissions = Omissions(modules, faults, schedulers)
        self._frozen = FrozenLayers()
        self._thread = TrainingThread()
        self._reset()

    @property
    def named(self) -> Sequence[NamedTensor]:
        """All that is trained, in the order in which every rank has it."""
        return self._board.named

    def install(self) -> None:
        self._patches.install()

    def remove(self) -> None:
        self._patches.remove()
        self._omissions.close()

    def take(self, step: int) -> Reading:
        """What the step brought. The next step begins."""
        self._thread.note()
        numbers, stages = self._numbers, set(self._stages.values())
        sampled = self._sampled
        if sampled is not None:
            sampled = replace(sampled, weights=self._reads_weights())
        is_left_out = sampled is not None and not sampled.gradients and not stages
        numbers["optimizer_steps"] = float(self._num_optimizer_steps)
        if self._turns.are_taken:
            numbers["alternating"] = 1.0
        if self._has_scaler:
            numbers.setdefault("skipped", 0.0)
        is_whole = self._board.sharing is None
        found, omissions = self._omissions.end_row(
            step, self._board.named if is_whole else (), self._optimizers.known
        )
        numbers |= found
        if (num_frozen := self._frozen.end_row(self._board.named)) is not None:
            numbers["frozen_layers"] = num_frozen
        reading = Reading(
            layout=self._board.layout if stages or is_left_out else None,
            stats=self._board.take(weights=self._reads_weights()) if stages else {},
            numbers=numbers,
            stage=max(stages) if stages else None,
            sampled=sampled,
            sharing=self._board.sharing,
            notices=tuple(self._board.take_notices()),
            changes=(*self._board.take_changes(), *self._optimizers.take_changes()),
            omissions=tuple(omissions),
        )
        self._reset()
        return reading

    def _reset(self) -> None:
        self._numbers = {}
        self._stages: dict[int, Stage] = {}
        self._depths: dict[int, int] = {}
        self._with_closure: set[int] = set()
        self._num_optimizer_steps = 0
        self._turns.end_row()
        self._is_fresh = True
        self._sampled: Sampled | None = None

    # What torch tells, in the order of a step.

    def after_unscale(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("unscale_", self.remove):
            optimizer = _argument(args, kwargs, 1, "optimizer")
            if self._steps_here(optimizer) and (slots := self._slots_of(optimizer)):
                self._omissions.note_unscaled(slots)
                self._read(slots, Stage.UNSCALED_PRECLIP)

    def before_total_norm(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("total_norm", self.remove):
            if not self._thread.is_here(lambda: False):  # whose they are, our gradients would say
                return
            self._refresh()
            grads = _as_sequence(_argument(args, kwargs, 0, "tensors"))
            self._read(self._board.slots_of_grads(grads), Stage.PRECLIP)

    def before_clip(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("clip", self.remove):
            tensors = _as_sequence(_argument(args, kwargs, 0, "parameters"))
            if not self._trains_here(tensors):
                return
            self._refresh()
            slots = self._board.slots_of_tensors(tensors)
            if slots:
                max_norm = float(_argument(args, kwargs, 1, "max_norm"))
                total_norm: Tensor = _argument(args, kwargs, 2, "total_norm")
                if not self._plan().gradients and _is_known_broken(total_norm):
                    self._sampled = EVERYTHING
                self._read([one for one in slots if one not in self._stages], Stage.PRECLIP)
                self._note_clip(max_norm, total_norm)
                if self._has_scaler:
                    self._omissions.note_clip(slots, max_norm)

    def before_own_clip(self, args: Arguments, kwargs: Keywords) -> None:
        """By no norm that torch is asked for, so that no coefficient is known: each element cut by
        itself, or DeepSpeed's clip at stage 0."""
        with self._faults.guard("own clip", self.remove):
            tensors = _as_sequence(_argument(args, kwargs, 0, "parameters"))
            if not self._trains_here(tensors):
                return
            self._refresh()
            self._read(self._board.slots_of_tensors(tensors), Stage.PRECLIP)

    def before_scaler_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("scaler.step", self.remove):
            scaler = args[0]
            optimizer = _argument(args, kwargs, 1, "optimizer")
            if not self._steps_here(optimizer):
                return
            if self._slots_of(optimizer) and scaler.is_enabled():
                self._has_scaler = True
                scale: Tensor | None = scaler._scale  # `get_scale` would wait for the device
                if scale is not None:
                    self._numbers["loss_scale"] = number(scale)

    def before_optimizer_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> None:
        with self._faults.guard("step", self.remove):
            if not self._steps_here(optimizer):
                return
            slots = self._slots_of(optimizer)
            if not slots or is_rehearsal(optimizer):
                return
            again = id(optimizer) in self._depths
            depth = self._depths[id(optimizer)] = self._depths.get(id(optimizer), 0) + 1
            if depth > 1:  # a subclass whose `step` calls that of its parent
                return
            self._optimizers.follow(optimizer, slots)
            self._turns.before_step(optimizer)
            self._numbers |= self._optimizers.rates_of(optimizer)
            self._omissions.before_step(optimizer)
            if closure_of(args, kwargs) is not None:
                self._with_closure.add(id(optimizer))
            else:
                self._omissions.note_step(optimizer, slots)
                # Of several steps in one row (a critic's, say) the last is read, as its clip is.
                read = () if again else self._stages
                unread = [slot for slot in slots if slot not in read] if read else slots
                self._read(unread, Stage.PRESTEP, getattr(optimizer, "grad_scale", None))
            found_inf: Tensor | None = getattr(optimizer, "found_inf", None)
            if found_inf is not None:  # a fused optimizer skips by itself, on the device
                self._numbers["skipped"] = number(found_inf)
            elif self._board.is_broken:
                self._on_broken()
            if self._reads_weights():
                self._board.before_step(slots)

    def after_optimizer_step(self, optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("step", self.remove):
            depth = self._depths.get(id(optimizer), 0)
            if depth == 0:
                return
            self._depths[id(optimizer)] = depth - 1
            if depth > 1:
                return
            self._num_optimizer_steps += 1
            if id(optimizer) in self._with_closure:
                slots = self._slots_of(optimizer)
                self._omissions.note_step(optimizer, slots)
                self._read(slots, Stage.CLOSURE_POST)
            self._omissions.after_step(optimizer)
            self._board.after_step()
            self._turns.after_step(optimizer, self._optimizers.living())

    def after_scaler_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("scaler.step", self.remove):
            optimizer = _argument(args, kwargs, 1, "optimizer")
            if not self._steps_here(optimizer):
                return
            if self._slots_of(optimizer) and id(optimizer) not in self._depths:
                self._numbers["skipped"] = 1.0  # the scaler found infinities and left it out
                self._numbers |= self._optimizers.rates_of(optimizer, self._lr_scale())

    def before_zero_step(self, args: Arguments, kwargs: Keywords) -> None:
        """DeepSpeed's own, in which it unscales, clips, and steps piece by piece."""
        with self._faults.guard("zero step", self.remove):
            zero: ZeroOptimizer = args[0]
            self._refresh()
            slots = self._board.slots_of_tensors(stepped_by(zero))
            if not slots:
                return
            self._numbers |= self._optimizers.rates_of(zero.optimizer, self._lr_scale())
            scale = float(zero.loss_scale)
            if scale != 1.0:
                self._has_scaler = True
                self._numbers["loss_scale"] = scale
            still_borne = torch.tensor(scale, dtype=torch.float32, device="cpu")
            self._read(slots, Stage.UNSCALED_PRECLIP, still_borne)
            self._board.before_step(slots)

    def after_zero_step(self, args: Arguments, kwargs: Keywords) -> None:
        with self._faults.guard("zero step", self.remove):
            zero: ZeroOptimizer = args[0]
            if not self._board.slots_of_tensors(stepped_by(zero)):
                return
            if zero.overflow:
                self._numbers["skipped"] = 1.0
                return
            self._num_optimizer_steps += 1
            if zero.clip_grad > 0.0:
                self._note_clip(zero.clip_grad, total_norm_of(zero))
            self._board.after_step()

    # What is made of it.

    def _steps_here(self, optimizer: Optimizer) -> bool:
        return self._thread.is_here(lambda: self._holds_any(parameters_of(optimizer)))

    def _trains_here(self, tensors: Sequence[Tensor]) -> bool:
        return self._thread.is_here(lambda: self._holds_any(tensors))

    def _holds_any(self, tensors: Sequence[Tensor]) -> bool:
        return bool(self._board.slots_of_tensors(tensors))

    def _read(self, slots: Sequence[int], stage: Stage, scale: Tensor | None = None) -> None:
        if self._stages:
            slots = [slot for slot in slots if self._stages.get(slot, stage) >= stage]
        if slots and self._plan().gradients:
            self._board.read_gradients(slots, scale)
            self._stages |= dict.fromkeys(slots, stage)

    def _plan(self) -> Sampled:
        """How much is read of this step; asked for once something of ours is touched."""
        if self._sampled is None:
            governor = None if self._board.must_be_read else self._governor
            self._sampled = EVERYTHING if governor is None else governor.next()
        return self._sampled

    def _reads_weights(self) -> bool:
        """Also where gradients have just broken, to find the culprit."""
        return self._plan().weights or self._board.is_broken

    def _slots_of(self, optimizer: Optimizer) -> Sequence[int]:
        if self._governor is not None:
            slots = self._board.slots_of(optimizer)
            if slots and not self._plan().gradients:
                return slots  # whether they still are all is asked where they are read
        self._refresh()
        return self._board.slots_of(optimizer)

    def _refresh(self) -> None:
        if self._is_fresh:
            self._is_fresh = False
            self._board.refresh(self._optimizers.known)

    def _note_clip(self, max_norm: float, total_norm: Tensor) -> None:
        # As torch computes it. A NaN stays NaN: `clipped` takes that for a clip.
        known = whole(total_norm.detach())
        if known is None:
            return
        coefficient = torch.clamp(max_norm / (known + 1e-6), max=1.0)
        last, now = self._numbers.get("clip_coef"), number(coefficient)
        self._numbers["clip_coef"] = now if last is None else lesser(last, now)


def _is_known_broken(total_norm: Tensor) -> bool:
    """Whether it is not finite, and saying so needs no waiting."""
    known = whole(total_norm.detach())
    return known is not None and known.device.type == "cpu" and not bool(known.isfinite().all())


def _argument(args: Arguments, kwargs: Keywords, place: int, name: str) -> Any:
    return args[place] if len(args) > place else kwargs[name]


def _as_sequence(tensors: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else tensors
