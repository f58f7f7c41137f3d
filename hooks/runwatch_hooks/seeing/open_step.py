"""The step that is open: what is read of which layers, in which place, and what is known of it.

A gradient is read in the first place that it passes, and not again in the same step. Of several in
one row (a clip for each micro-batch, steps of a critic) the last is told: one that was written to
since the clip or the optimizer's step that followed the reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.governor import EVERYTHING, Governor, Sampled
from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.seeing.board import Board
from runwatch_hooks.seeing.left_gradients import Left
from runwatch_hooks.seeing.numbers import Number, either, lesser, number
from runwatch_hooks.seeing.step_reading import Reading, Stage
from runwatch_hooks.seeing.watched_optimizers import WatchedOptimizers


class OpenStep:
    """From the end of a row to the end of the next. Slots are layers' places in the layout."""

    def __init__(
        self,
        board: Board,
        optimizers: WatchedOptimizers,
        governor: Governor | None,
    ) -> None:
        """`governor` says how much is read of which step; without one it is everything."""
        self._board = board
        self._optimizers = optimizers
        self._governor = governor
        self._begin()

    def _begin(self) -> None:
        self.numbers: dict[str, Number] = {}
        self._stages: dict[int, Stage] = {}
        self._stepped: list[Sequence[int]] = []
        """Slots of each step of an optimizer since gradients were read last."""
        self._used: set[int] = set()
        """Slots of what an optimizer has stepped by since it was read."""
        self._left: dict[int, Left] = {}
        """How a clip or a step leaves a gradient, by its slot; of the first of those it is for."""
        self._at_rest: set[int] = set()
        self._is_fresh = True
        self._sampled: Sampled | None = None

    @property
    def reads_weights(self) -> bool:
        """Also where gradients have just broken, to find the culprit."""
        return self._plan().weights or self._board.is_broken

    def slots_of(self, optimizer: Optimizer) -> Sequence[int]:
        """Where an optimizer's tensors are; empty where all are foreign to the run."""
        if self._governor is not None:
            slots = self._board.slots_of(optimizer)
            if slots and not self._plan().gradients:
                return slots  # whether they still are all is asked where they are read
        self._refresh()
        return self._board.slots_of(optimizer)

    def holds_any(self, tensors: Sequence[Tensor]) -> bool:
        """Whether one of them is watched, as far as it is known from the step before."""
        return bool(self._board.slots_of_tensors(tensors))

    def slots_of_tensors(self, tensors: Sequence[Tensor]) -> Sequence[int]:
        self._refresh()
        return self._board.slots_of_tensors(tensors)

    def slots_of_grads(self, grads: Sequence[Tensor]) -> Sequence[int]:
        self._refresh()
        return self._board.slots_of_grads(grads)

    def note(self, numbers: Mapping[str, Number]) -> None:
        """What is known of the step as a whole. What is said last stands."""
        self.numbers |= numbers

    def read(self, slots: Sequence[int], stage: Stage, scale: Tensor | None = None) -> None:
        """Read gradients, unless they were in an earlier place; `scale` is what they still bear."""
        if self._stages:
            stages, used = self._stages, self._take_used()
            slots = [one for one in slots if one in used or stages.get(one, stage) >= stage]
        self._read(slots, stage, scale)

    def read_unread(self, slots: Sequence[int], stage: Stage, scale: Tensor | None = None) -> None:
        """Those that were read nowhere yet."""
        if self._stages:
            stages, used = self._stages, self._take_used()
            slots = [one for one in slots if one in used or one not in stages]
        self._read(slots, stage, scale)

    def read_unscaled(self, slots: Sequence[int]) -> None:
        """The scaler has just taken the scale out of them."""
        self._forget_left(slots)
        self.read(slots, Stage.UNSCALED_PRECLIP)

    def read_scaled(self, slots: Sequence[int], scale: Tensor) -> None:
        """Before an optimizer that takes `scale` out by itself, whatever was read of them before:
        in no place before it is their scale at hand."""
        self._forget_left(slots)
        self._read(slots, Stage.PRESTEP, scale)

    def read_clipped(self, slots: Sequence[int], max_norm: float, total_norm: Tensor) -> None:
        """Before a clip by a norm that is known."""
        if not self._plan().gradients and _is_known_broken(total_norm):
            self._sampled = EVERYTHING
        self.read_unread(slots, Stage.PRECLIP)
        self._note_left(slots, num_writes=1)
        self.note_clip(max_norm, total_norm)

    def note_stepped(self, slots: Sequence[int]) -> None:
        """An optimizer has stepped by their gradients."""
        self._stepped.append(slots)
        self._note_left(slots)

    def note_skipped(self, skipped: Number) -> None:
        """Whether an optimizer's step was left out: 1 or 0. That one was, stands."""
        last = self.numbers.get("skipped")
        self.numbers["skipped"] = skipped if last is None else either(last, skipped)

    def note_at_rest(self, tensors: Sequence[Tensor]) -> None:
        """An optimizer that steps now is told not to move these."""
        if tensors:
            self._at_rest.update(self._board.slots_of_tensors(tensors))

    def note_clip(self, max_norm: float, total_norm: Tensor) -> None:
        # As torch computes it. A NaN stays NaN: `clipped` takes that for a clip.
        known = whole(total_norm.detach())
        if known is None:
            return
        coefficient = torch.clamp(max_norm / (known + 1e-6), max=1.0)
        last, now = self.numbers.get("clip_coef"), number(coefficient)
        self.numbers["clip_coef"] = now if last is None else lesser(last, now)

    def close(self, changes: Iterable[str], omissions: Iterable[str]) -> Reading:
        """All of it. The next step begins."""
        board, stages, sampled = self._board, set(self._stages.values()), self._sampled
        if sampled is not None:
            sampled = replace(sampled, weights=self.reads_weights)
        is_left_out = sampled is not None and not sampled.gradients and not stages
        reading = Reading(
            layout=board.layout if stages or is_left_out else None,
            stats=board.take(weights=self.reads_weights) if stages else {},
            numbers=self.numbers,
            stage=max(stages) if stages else None,
            sampled=sampled,
            sharing=board.sharing,
            at_rest=tuple(sorted(self._at_rest)),
            notices=tuple(board.take_notices()),
            changes=(*board.take_changes(), *changes),
            omissions=tuple(omissions),
        )
        self._begin()
        return reading

    def _read(self, slots: Sequence[int], stage: Stage, scale: Tensor | None) -> None:
        if slots and self._plan().gradients and not self._are_left(slots):
            self._board.read_gradients(slots, scale)
            self._stages |= dict.fromkeys(slots, stage)
            if self._used:
                self._used.difference_update(slots)

    def _take_used(self) -> set[int]:
        """Put together once it is asked for: of most rows it never is."""
        if self._stepped:
            self._used.update(*self._stepped)
            self._stepped.clear()
        return self._used

    def _note_left(self, slots: Sequence[int], num_writes: int = 0) -> None:
        """`num_writes`: how often what is about to be done to a gradient writes to it."""
        for slot in slots:
            if (grad := self._board.gradient_at(slot)) is not None:
                self._left[slot] = Left(grad, num_writes)
                break

    def _forget_left(self, slots: Sequence[int]) -> None:
        if self._left:
            for slot in slots:
                self._left.pop(slot, None)

    def _are_left(self, slots: Sequence[int]) -> bool:
        """Whether nobody has made other gradients since: a norm that is asked for after a clip, or
        after the step, is asked of what was read before it."""
        if not self._left:
            return False
        left = next((slot for slot in slots if slot in self._left), None)
        return left is not None and self._left[left].is_as_left(self._board.gradient_at(left))

    def _plan(self) -> Sampled:
        """How much is read of this step; asked for once something of ours is touched."""
        if self._sampled is None:
            governor = None if self._board.must_be_read else self._governor
            self._sampled = EVERYTHING if governor is None else governor.next()
        return self._sampled

    def _refresh(self) -> None:
        if self._is_fresh:
            self._is_fresh = False
            self._board.refresh(self._optimizers.known)


def _is_known_broken(total_norm: Tensor) -> bool:
    """Whether it is not finite, and saying so needs no waiting."""
    known = whole(total_norm.detach())
    return known is not None and known.device.type == "cpu" and not bool(known.isfinite().all())
