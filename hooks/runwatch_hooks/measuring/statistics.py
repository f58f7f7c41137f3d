"""How tensors are measured over a step, and the measuring of those on a CPU."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch.nonfinite import ABSENT_32
from runwatch_hooks.measuring.dense import num_parts
from runwatch_hooks.measuring.gradient_sums import (
    MAX_ABS,
    NUM_ELEMENTS,
    NUM_NONFINITE,
    NUM_ZEROS,
    SUM_OF_SQUARES,
    GradientReader,
)
from runwatch_hooks.measuring.host_samples import samples_on_host
from runwatch_hooks.measuring.one_pass import load_one_pass
from runwatch_hooks.measuring.sampled_updates import ALL_UP_TO, SampledUpdates
from runwatch_hooks.measuring.stats import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

NORM_TURNS: Final = 8
"""Steps in which every parameter's norm is read once: it changes by less than the learning rate
a step, so an eighth of the reading tells as much."""


class LayerStatistics(Protocol):
    """Statistics of tensors of one device over one step, by their places ('slots')."""

    def read_gradients(
        self, slots: Sequence[int], grads: Sequence[Tensor], scale: Tensor | None
    ) -> None:
        """Take in gradients, to be divided by `scale` where they still bear one."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether what was read since the step began is known not to be finite; False where it
        would have to be waited for."""
        ...

    def before_step(self, slots: Sequence[int]) -> None:
        """An optimizer is about to change these tensors; not called where weights are not read.

        Reads an eighth of the parameters' norms, at first all. A norm of a step is that of before
        it: one that is not finite was there before the loss and its gradients were, and a step by
        a gradient that is not finite spoils every parameter."""
        ...

    def after_step(self) -> None:
        """It has changed them."""
        ...

    def take(self, *, weights: bool = True) -> Tensor:
        """(S, T) float32 of the step, owned, ABSENT_32 where nothing was recorded. The next step
        begins. `weights`: whether they were to be read, though no optimizer may have stepped."""
        ...


class CpuStatistics:
    """The statistics of tensors in the host's memory: exact, each gradient read once."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        turns: Sequence[int] | None = None,
        *,
        are_parts: bool = False,
    ) -> None:
        """`turns` are those of the tensors' norms, where ranks must take them alike.

        Of parts of tensors, `update_ratio` is left to whoever joins them: in its place stands
        the update's norm.
        """
        self._tensors = tensors
        self._are_parts = are_parts
        one_pass = load_one_pass()
        self._reader = GradientReader(one_pass)
        self._updates = SampledUpdates(tensors, samples_on_host(one_pass))
        self._turns = NormTurns(deal([one.numel() for one in tensors]) if turns is None else turns)
        self._are_sampled = np.array([num_parts(one) > ALL_UP_TO for one in tensors], np.bool_)
        self._norms = np.full(len(tensors), np.nan)
        self._squares = np.full(len(tensors), np.nan)
        self._stats = self._empty()
        self._are_norms_read = False
        self._is_broken = False
        self._was_broken = False

    def read_gradients(
        self, slots: Sequence[int], grads: Sequence[Tensor], scale: Tensor | None
    ) -> None:
        sums = self._reader.read(grads)
        divisor = 1.0 if scale is None else float(scale)
        places = np.array(slots)  # once: numpy would turn a list into one at each use
        with np.errstate(all="ignore"):  # beyond float32 is infinite
            self._stats[GRAD_NORM, places] = np.sqrt(sums[SUM_OF_SQUARES]) / divisor
            self._stats[GRAD_ABSMAX, places] = sums[MAX_ABS] / divisor
            self._stats[ZERO_FRAC, places] = sums[NUM_ZEROS] / np.maximum(sums[NUM_ELEMENTS], 1)
        # Of several readings in one step the last counts, but what was bad in any is not hidden.
        found = np.fmax(self._stats[NONFINITE, places], sums[NUM_NONFINITE])
        self._stats[NONFINITE, places] = found
        self._is_broken = self._is_broken or bool(sums[NUM_NONFINITE].any())

    @property
    def is_broken(self) -> bool:
        return self._is_broken

    def before_step(self, slots: Sequence[int]) -> None:
        self._read_norms()
        self._updates.before(slots)

    def after_step(self) -> None:
        compared = self._updates.after()
        if compared is not None:
            slots, squares = compared
            self._squares[slots] = squares.numpy()

    def take(self, *, weights: bool = True) -> Tensor:
        if weights:
            self._read_norms()  # of a step that no optimizer took
        self._are_norms_read = False
        self._was_broken, self._is_broken = self._is_broken, False
        stats, self._stats = self._stats, self._empty()
        squares, self._squares = self._squares, np.full(len(self._tensors), np.nan)
        with np.errstate(all="ignore"):
            if self._are_parts:
                moved = np.flatnonzero(~np.isnan(squares))
                stats[UPDATE_RATIO, moved] = np.sqrt(squares[moved])
                return torch.from_numpy(stats)
            ratios = np.sqrt(squares) / self._norms
            # Not of a tensor that no step moved, nor of zeros, which have no size to compare with;
            # nor of a few rows of an embedding, where the sample holds none of those that moved.
            zeros = stats[ZERO_FRAC]
            is_missed = self._are_sampled & (squares == 0.0) & (zeros > 0.5) & (zeros < 1.0)
            is_known = (self._norms != 0.0) & ~np.isnan(squares) & ~is_missed
            np.copyto(stats[UPDATE_RATIO], ratios, where=is_known)
        return torch.from_numpy(stats)

    def _read_norms(self) -> None:
        """Those whose turn it is; where gradients have just broken all, to find a culprit."""
        if self._are_norms_read:
            return
        self._are_norms_read = True
        turn = self._turns.next()
        if self._is_broken and not self._was_broken:
            turn = range(len(self._tensors))
        # A program may have put the memory of one on another device since the layers were looked
        # through: its address would be read here, and end the process.
        turn = [slot for slot in turn if self._tensors[slot].is_cpu]
        parameters = [self._tensors[slot].detach() for slot in turn]
        with np.errstate(all="ignore"):
            norms = np.sqrt(self._reader.squares(parameters))
            self._norms[turn] = self._stats[PARAM_NORM, turn] = norms

    def _empty(self) -> NDArray[np.float32]:
        return np.full((len(STATS), len(self._tensors)), ABSENT_32, np.float32)


def deal(num_elements: Sequence[int]) -> list[int]:
    """A turn for each tensor, so that about as many elements are read at each turn."""
    turns = [0] * len(num_elements)
    dealt = [0] * NORM_TURNS
    for slot in sorted(range(len(turns)), key=lambda slot: -num_elements[slot]):
        turns[slot] = dealt.index(min(dealt))
        dealt[turns[slot]] += num_elements[slot]
    return turns


class NormTurns:
    """Whose norms are read at which step: at the first all, then an eighth in turn."""

    def __init__(self, turns: Sequence[int]) -> None:
        self._num_tensors = len(turns)
        self._hands: list[list[int]] = [[] for _ in range(NORM_TURNS)]
        self._step = -1
        for slot, turn in enumerate(turns):
            self._hands[turn].append(slot)

    def next(self) -> Sequence[int]:
        self._step += 1
        return self._hands[self._step % NORM_TURNS] if self._step else range(self._num_tensors)
