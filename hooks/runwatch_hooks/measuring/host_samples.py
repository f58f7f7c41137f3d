"""Samples of tensors in host memory, followed from step to step.

An optimizer finds the values that its last step left, unless something else has changed them. So a
sample is read after each step, and before a step only if it may have changed. Torch counts writes
to a tensor; for those that it does not see (through `Tensor.data`, or memory corruption) some
elements of each tensor are compared. Such changes are never taken for an update.

Most of the cost is memory latency, because each sampled element of a large tensor is in a cache
line of its own. Runs of neighbours would share lines, and were tried: with 1024 elements in runs of
4 (of 16), the error of an embedding's update is 2.4 times (5.4 times) as large, and of a matrix's
1.1 times (2.6 times); medians over three small models under AdamW, Adam and SGD.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.measuring.numpy_view import numpy_view
from runwatch_hooks.measuring.one_pass import OnePass, Spots
from runwatch_hooks.measuring.sampled_updates import Samples, shares_of
from runwatch_hooks.measuring.torch_samples import TorchSamples


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
