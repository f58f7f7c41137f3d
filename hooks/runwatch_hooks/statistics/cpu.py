"""The interface for statistics of tensors over a step, and its implementation for CPUs."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch.nonfinite import ABSENT_32
from runwatch_hooks.statistics.dense import num_parts, numpy_view
from runwatch_hooks.statistics.gradient_sums import (
    MAX_ABS,
    NUM_ELEMENTS,
    NUM_NONFINITE,
    NUM_ZEROS,
    SUM_OF_SQUARES,
    GradientReader,
    OnePass,
    Spots,
    open_one_pass,
)
from runwatch_hooks.statistics.samples import (
    ALL_UP_TO,
    SampledUpdates,
    Samples,
    TorchSamples,
    shares_of,
)
from runwatch_hooks.statistics.totals import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

# An optimizer finds the values that its last step left, unless something else has changed them. So
# a sample is read after each step, and before a step only if it may have changed. Torch counts
# writes to a tensor; for those that it does not see (through `Tensor.data`, or memory corruption)
# some elements of each tensor are compared. Such changes are never taken for an update.
#
# Most of the cost is memory latency, because each sampled element of a large tensor is in a cache
# line of its own. Runs of neighbours would share lines, and were tried: with 1024 elements in runs
# of 4 (of 16), the error of an embedding's update is 2.4 times (5.4 times) as large, and of a
# matrix's 1.1 times (2.6 times); medians over three small models under AdamW, Adam and SGD.


def samples_on_host(
    one_pass: OnePass | None,
) -> Callable[[Sequence[Tensor], Sequence[Tensor]], Samples]:
    """A function that opens samples of tensors in host memory, read by `one_pass` if it was
    compiled."""

    def open_samples(tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> Samples:
        if all(map(_is_plain, samples)):
            return HostSamples(tensors, samples, one_pass)
        return TorchSamples(tensors, samples)

    return open_samples


class HostSamples:
    """Fixed elements of float32 tensors, with their last values; implements `Samples`."""

    def __init__(
        self, tensors: Sequence[Tensor], samples: Sequence[Tensor], one_pass: OnePass | None
    ) -> None:
        """`samples` are one-dimensional views of the tensors; empty for a tensor that cannot be
        sampled. Without the compiled code, numpy is used, with the same results."""
        self._tensors = tensors
        self._samples = samples
        """Keeps the memory alive."""
        self._one_pass = one_pass
        self._arrays = [numpy_view(one) for one in samples] if one_pass is None else []
        counts = [one.numel() for one in samples]
        self._spots = Spots(
            [one.data_ptr() for one in samples], [one.stride(0) for one in samples], counts
        )
        lengths = np.array(counts)
        self._is_held = lengths > 0
        self._starts = (np.cumsum(lengths) - lengths)[self._is_held]
        self._shares = np.array(shares_of(tensors, samples))
        self._elements = np.zeros(sum(counts), np.float32)
        self._spare = np.empty_like(self._elements)
        self._versions: list[int] | None = None
        """Torch's counts of writes after the last step; None before the first."""

    @property
    def kept(self) -> Sequence[Tensor]:
        return ()

    def remember(self) -> None:
        """Make sure that `remembered` has the current values."""
        if not self._stand():
            self._follow()

    @property
    def remembered(self) -> Tensor:
        return torch.from_numpy(self._elements)

    def recall(self, elements: Tensor) -> None:
        np.copyto(self._elements, elements.numpy())

    def squares(self) -> Tensor:
        """Like `Samples.squares`, in float64."""
        found = self._follow()
        found *= self._shares
        self._versions = self._versions_now()
        return torch.from_numpy(found)

    def _stand(self) -> bool:
        """Whether the elements are unchanged since they were read. Without the compiled code this
        returns False, since checking would cost as much as reading."""
        return (
            self._one_pass is not None
            and self._versions == self._versions_now()
            and self._one_pass.stand(self._spots, self._elements)
        )

    def _versions_now(self) -> list[int]:
        return [one._version for one in self._tensors]  # pyright: ignore[reportPrivateUsage]

    def _follow(self) -> NDArray[np.float64]:
        """(T,) sums of squared changes of the elements since the last reading."""
        if self._one_pass is not None:
            return self._one_pass.follow(self._spots, self._elements)
        changes, now = self._elements, np.concatenate(self._arrays, out=self._spare)
        self._elements, self._spare = now, changes
        squares = np.zeros(len(self._arrays))
        with np.errstate(all="ignore"):
            np.subtract(now, changes, out=changes)
            if self._starts.size:
                np.multiply(changes, changes, out=changes)
                squares[self._is_held] = np.add.reduceat(changes, self._starts)
        return squares


def _is_plain(sample: Tensor) -> bool:
    """Whether it can be read directly, and torch counts writes to it."""
    is_on_host = sample.device.type == "cpu" and sample.dtype == torch.float32
    return is_on_host and not sample.is_inference()


NORM_TURNS: Final = 8
"""Steps in which every parameter's norm is read once. A norm changes by less than the learning rate
per step, so reading an eighth of the parameters at each step is enough."""


class LayerStatistics(Protocol):
    """Statistics of the tensors of one device over one step. A slot is a tensor's index."""

    def read_gradients(
        self, slots: Sequence[int], grads: Sequence[Tensor], scale: Tensor | None
    ) -> None:
        """Read gradients; `scale` is the loss scale that they still contain."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether gradients read in this step are known to be non-finite; False if knowing it would
        be a sync."""
        ...

    def before_step(self, slots: Sequence[int]) -> None:
        """An optimizer is about to change these tensors. Not called if weights are not read.

        Reads an eighth of the parameters' norms, and all of them in the first step. They are read
        before the update: a non-finite norm then means that the parameter was broken before this
        step's loss and gradients, whereas a step with non-finite gradients breaks all of them."""
        ...

    def after_step(self) -> None:
        """The optimizer has changed them."""
        ...

    def take(self, *, weights: bool = True) -> Tensor:
        """The step's statistics (S, T), a new float32 tensor, ABSENT_32 where nothing was recorded.
        The next step begins. With `weights`, norms are read even if no optimizer has stepped."""
        ...


class CpuStatistics:
    """Statistics of tensors in host memory: exact, with each gradient read once."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        turns: Sequence[int] | None = None,
        *,
        are_parts: bool = False,
    ) -> None:
        """`turns` say at which steps each norm is read, if all ranks must agree on that.

        With `are_parts` the tensors are shards; then `update_ratio` holds the norm of the update,
        and the ratio is computed when the shards are joined.
        """
        self._tensors = tensors
        self._are_parts = are_parts
        one_pass = open_one_pass() if tensors else None
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
        places = np.array(slots)  # once, or numpy would convert the list at each use
        with np.errstate(all="ignore"):  # values beyond float32 become infinite
            self._stats[GRAD_NORM, places] = np.sqrt(sums[SUM_OF_SQUARES]) / divisor
            self._stats[GRAD_ABSMAX, places] = sums[MAX_ABS] / divisor
            self._stats[ZERO_FRAC, places] = sums[NUM_ZEROS] / np.maximum(sums[NUM_ELEMENTS], 1)
        # Of several readings in one step the last counts, but non-finite values of any stay.
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
            self._read_norms()  # if no optimizer has stepped
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
            # Not recorded for tensors that no optimizer stepped, for a norm of 0, and where only a
            # few rows changed, as of an embedding, and the sample contains none of them.
            zeros = stats[ZERO_FRAC]
            is_missed = self._are_sampled & (squares == 0.0) & (zeros > 0.5) & (zeros < 1.0)
            is_known = (self._norms != 0.0) & ~np.isnan(squares) & ~is_missed
            np.copyto(stats[UPDATE_RATIO], ratios, where=is_known)
        return torch.from_numpy(stats)

    def _read_norms(self) -> None:
        """Read the norms that are due; all of them if gradients have just become non-finite, to
        find the culprit."""
        if self._are_norms_read:
            return
        self._are_norms_read = True
        turn = self._turns.next()
        if self._is_broken and not self._was_broken:
            turn = range(len(self._tensors))
        # A program may have moved a tensor to another device since the layers were last checked.
        # Reading its address here would kill the process.
        turn = [slot for slot in turn if self._tensors[slot].is_cpu]
        parameters = [self._tensors[slot].detach() for slot in turn]
        with np.errstate(all="ignore"):
            norms = np.sqrt(self._reader.squares(parameters))
            self._norms[turn] = self._stats[PARAM_NORM, turn] = norms

    def _empty(self) -> NDArray[np.float32]:
        return np.full((len(STATS), len(self._tensors)), ABSENT_32, np.float32)


def deal(num_elements: Sequence[int]) -> list[int]:
    """A turn for each tensor, such that about equally many elements are read at each turn."""
    turns = [0] * len(num_elements)
    dealt = [0] * NORM_TURNS
    for slot in sorted(range(len(turns)), key=lambda slot: -num_elements[slot]):
        turns[slot] = dealt.index(min(dealt))
        dealt[turns[slot]] += num_elements[slot]
    return turns


class NormTurns:
    """Which norms are read at which step: all at the first, then an eighth at a time."""

    def __init__(self, turns: Sequence[int]) -> None:
        self._num_tensors = len(turns)
        self._hands: list[list[int]] = [[] for _ in range(NORM_TURNS)]
        self._step = -1
        for slot, turn in enumerate(turns):
            self._hands[turn].append(slot)

    def next(self) -> Sequence[int]:
        self._step += 1
        return self._hands[self._step % NORM_TURNS] if self._step else range(self._num_tensors)
