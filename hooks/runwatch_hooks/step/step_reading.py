"""What is read of a step: while it is open, and before its numbers have left their devices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch.layouts import Layout
from runwatch_hooks.governor import EVERYTHING, Governor, Sampled
from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.step.gradient_marks import GradientVersion
from runwatch_hooks.step.model import ModelStatistics
from runwatch_hooks.step.numbers import Number, either, lesser, number
from runwatch_hooks.step.optimizers import WatchedOptimizers
from runwatch_hooks.step.row import Sharing


class Stage(IntEnum):
    """The point of a step at which gradients were read. A reading at a later stage does not replace
    one at an earlier stage."""

    UNSCALED_PRECLIP = 0
    PRECLIP = 1
    PRESTEP = 2
    """As the optimizer uses them; already clipped, if the clip was not seen."""
    CLOSURE_POST = 3
    """After a step that evaluates a closure (LBFGS): the gradients of the last evaluation."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What the probe read of one step."""

    layout: Layout | None
    """None if no gradient was seen. Set, with empty `stats`, if the governor skipped the
    reading."""
    stats: Mapping[tuple[int, ...], Tensor]
    """Slots of the columns -> statistics (S, T), one entry for each device."""
    numbers: Mapping[str, Number]
    """`lr`, `clip_coef`, `loss_scale`, `skipped`, `optimizer_steps`."""
    stage: Stage | None
    sampled: Sampled | None = None
    """How much of the step was read; None if no step of the run's layers was seen."""
    sharing: Sharing | None = None
    """How the layers are split over ranks; None if the stats describe whole tensors."""
    at_rest: tuple[int, ...] = ()
    """Slots that an optimizer stepped with a learning rate of 0."""
    notices: tuple[str, ...] = ()
    """Messages about what is not watched, or cannot be."""
    changes: tuple[str, ...] = ()
    """Messages about what is watched instead of something else."""


class OpenStep:
    """One step, from the end of a row to the end of the next. Slots are layers' indices in the
    layout.

    The current step: which layers were read at which stage, and the metrics known so far. A
    gradient is read at the first stage that it passes, and not again in the same step. If one row
    has several gradients of a layer (a clip for each micro-batch, several steps of a critic), the
    last counts: it is read again if it was written to since the clip or optimizer step after the
    reading.
    """

    def __init__(
        self,
        statistics: ModelStatistics,
        optimizers: WatchedOptimizers,
        governor: Governor | None,
    ) -> None:
        """`governor` decides how much of a step is read; without one, everything."""
        self._statistics = statistics
        self._optimizers = optimizers
        self._governor = governor
        self._begin()

    def _begin(self) -> None:
        self.numbers: dict[str, Number] = {}
        self._stages: dict[int, Stage] = {}
        self._stepped: list[Sequence[int]] = []
        """The slots of each optimizer step, not yet added to `_used`."""
        self._used: set[int] = set()
        """Slots whose gradients an optimizer has used since they were read."""
        self._versions: dict[int, GradientVersion] = {}
        """Slot -> its gradient as a clip or step left it; only for the first slot of each."""
        self._at_rest: set[int] = set()
        self._is_fresh = True
        self._sampled: Sampled | None = None

    @property
    def reads_weights(self) -> bool:
        """Whether weights are read. Always if gradients are non-finite, to find the culprit."""
        return self._plan().weights or self._statistics.is_broken

    def slots_of(self, optimizer: Optimizer) -> Sequence[int]:
        """The slots of an optimizer's tensors; empty if none belongs to the run."""
        if self._governor is not None:
            slots = self._statistics.slots_of(optimizer)
            if slots and not self._plan().gradients:
                return slots  # a step that is not read need not be checked for new layers
        self._refresh()
        return self._statistics.slots_of(optimizer)

    def holds_any(self, tensors: Sequence[Tensor]) -> bool:
        """Whether one of these tensors is watched, as of the step before."""
        return bool(self._statistics.slots_of_tensors(tensors))

    def slots_of_tensors(self, tensors: Sequence[Tensor]) -> Sequence[int]:
        self._refresh()
        return self._statistics.slots_of_tensors(tensors)

    def slots_of_grads(self, grads: Sequence[Tensor]) -> Sequence[int]:
        self._refresh()
        return self._statistics.slots_of_grads(grads)

    def note(self, numbers: Mapping[str, Number]) -> None:
        """Record metrics of the step; later values replace earlier ones."""
        self.numbers |= numbers

    def read(self, slots: Sequence[int], stage: Stage, scale: Tensor | None = None) -> None:
        """Read gradients, unless they were read at an earlier stage. `scale` is the loss scale that
        they still contain."""
        if self._stages:
            stages, used = self._stages, self._take_used()
            slots = [one for one in slots if one in used or stages.get(one, stage) >= stage]
        self._read(slots, stage, scale)

    def read_unread(self, slots: Sequence[int], stage: Stage, scale: Tensor | None = None) -> None:
        """Read those gradients that were not read at any stage yet."""
        if self._stages:
            stages, used = self._stages, self._take_used()
            slots = [one for one in slots if one in used or one not in stages]
        self._read(slots, stage, scale)

    def read_unscaled(self, slots: Sequence[int]) -> None:
        """Read gradients that the scaler has just unscaled."""
        self._forget_versions(slots)
        self.read(slots, Stage.UNSCALED_PRECLIP)

    def read_scaled(self, slots: Sequence[int], scale: Tensor) -> None:
        """Read gradients before an optimizer that unscales them itself, even if they were read
        before: at no earlier stage is `scale` available."""
        self._forget_versions(slots)
        self._read(slots, Stage.PRESTEP, scale)

    def read_clipped(self, slots: Sequence[int], max_norm: float, total_norm: Tensor) -> None:
        """Read gradients before a clip whose total norm is known."""
        if not self._plan().gradients and _is_known_broken(total_norm):
            self._sampled = EVERYTHING
        self.read_unread(slots, Stage.PRECLIP)
        self._note_versions(slots, num_writes=1)
        self.note_clip(max_norm, total_norm)

    def note_stepped(self, slots: Sequence[int]) -> None:
        """An optimizer has used these gradients for a step."""
        self._stepped.append(slots)
        self._note_versions(slots)

    def note_skipped(self, skipped: Number) -> None:
        """Record whether an optimizer's step was skipped, 1 or 0. One skipped step makes it 1."""
        last = self.numbers.get("skipped")
        self.numbers["skipped"] = skipped if last is None else either(last, skipped)

    def note_at_rest(self, tensors: Sequence[Tensor]) -> None:
        """The optimizer that steps now has a learning rate of 0 for these tensors."""
        if tensors:
            self._at_rest.update(self._statistics.slots_of_tensors(tensors))

    def note_clip(self, max_norm: float, total_norm: Tensor) -> None:
        # As torch computes it. NaN stays NaN, which `clipped` counts as a clip.
        known = whole(total_norm.detach())
        if known is None:
            return
        coefficient = torch.clamp(max_norm / (known + 1e-6), max=1.0)
        last, now = self.numbers.get("clip_coef"), number(coefficient)
        self.numbers["clip_coef"] = now if last is None else lesser(last, now)

    def close(self, changes: Iterable[str]) -> Reading:
        """The reading of the whole step. The next step begins."""
        statistics, stages, sampled = self._statistics, set(self._stages.values()), self._sampled
        if sampled is not None:
            sampled = replace(sampled, weights=self.reads_weights)
        is_left_out = sampled is not None and not sampled.gradients and not stages
        reading = Reading(
            layout=statistics.layout if stages or is_left_out else None,
            stats=statistics.take(weights=self.reads_weights) if stages else {},
            numbers=self.numbers,
            stage=max(stages) if stages else None,
            sampled=sampled,
            sharing=statistics.sharing,
            at_rest=tuple(sorted(self._at_rest)),
            notices=tuple(statistics.take_notices()),
            changes=(*statistics.take_changes(), *changes),
        )
        self._begin()
        return reading

    def _read(self, slots: Sequence[int], stage: Stage, scale: Tensor | None) -> None:
        if slots and self._plan().gradients and not self._are_unchanged(slots):
            self._statistics.read_gradients(slots, scale)
            self._stages |= dict.fromkeys(slots, self._stage_of(slots, stage))
            if self._used:
                self._used.difference_update(slots)

    def _stage_of(self, slots: Sequence[int], stage: Stage) -> Stage:
        """The stage that a reading counts as. One that finds no gradient, of layers that were
        frozen since and are in no clip, does not count as later than those that did."""
        if any(self._statistics.gradient_at(one) is not None for one in slots):
            return stage
        return min(stage, max(self._stages.values(), default=stage))

    def _take_used(self) -> set[int]:
        """Collected only when asked for, which most rows never do."""
        if self._stepped:
            self._used.update(*self._stepped)
            self._stepped.clear()
        return self._used

    def _note_versions(self, slots: Sequence[int], num_writes: int = 0) -> None:
        """Remember how the gradients look after `num_writes` more writes to each."""
        for slot in slots:
            if (grad := self._statistics.gradient_at(slot)) is not None:
                self._versions[slot] = GradientVersion(grad, num_writes)
                break

    def _forget_versions(self, slots: Sequence[int]) -> None:
        if self._versions:
            for slot in slots:
                self._versions.pop(slot, None)

    def _are_unchanged(self, slots: Sequence[int]) -> bool:
        """Whether the gradients are unchanged since the last clip or step. A norm computed after
        it, for logging, is of gradients that were already read before it."""
        if not self._versions:
            return False
        known = next((slot for slot in slots if slot in self._versions), None)
        return known is not None and self._versions[known].is_unchanged(
            self._statistics.gradient_at(known)
        )

    def _plan(self) -> Sampled:
        """How much of this step is read; decided when it first concerns one of the run's layers."""
        if self._sampled is None:
            governor = None if self._statistics.must_be_read else self._governor
            self._sampled = EVERYTHING if governor is None else governor.next()
        return self._sampled

    def _refresh(self) -> None:
        if self._is_fresh:
            self._is_fresh = False
            self._statistics.refresh(self._optimizers.known)


def _is_known_broken(total_norm: Tensor) -> bool:
    """Whether a norm is non-finite and this is known without a sync."""
    known = whole(total_norm.detach())
    return known is not None and known.device.type == "cpu" and not bool(known.isfinite().all())
