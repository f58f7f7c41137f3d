"""Reads gradients for the guard: whether all are finite, and their total norm."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from runwatch_hooks.faults import Faults
from runwatch_hooks.guard.outliers import norm_over
from runwatch_hooks.state.finite import all_finite
from runwatch_hooks.statistics.dense import dense
from runwatch_hooks.statistics.gpu_reading import NORM, NUM_NONFINITE, GradientsOnDevice, norms_of
from runwatch_hooks.statistics.gradient_sums import GradientReader, load_one_pass
from runwatch_hooks.statistics.readback import to_device


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The result for all gradients of a step; 0-dimensional, on an accelerator if one of them
    is."""

    is_bad: Tensor
    """1.0 if an element is non-finite, else 0.0."""
    norm: Tensor | None
    """None if it was not asked for."""


class Look:
    """Reads gradients, each once for both results."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._reader = GradientReader(load_one_pass())
        self._on_device: dict[torch.device, GradientsOnDevice] = {}

    def at(self, grads: Sequence[Tensor], *, wants_norm: bool = False) -> Seen | None:
        """Read the gradients; None if they have no elements."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for grad in grads:
            values = grad._values() if grad.is_sparse else grad  # pyright: ignore[reportPrivateUsage]
            if values.numel():
                by_device.setdefault(values.device, []).append(values)
        if not by_device:
            return None
        seen = [self._of_device(ours, wants_norm) for ours in by_device.values()]
        return seen[0] if len(seen) == 1 else _together(seen)

    def _of_device(self, grads: Sequence[Tensor], wants_norm: bool) -> Seen:
        if grads[0].device.type != "cpu":
            return self._on_accelerator(grads, wants_norm)
        if any(one.dtype != torch.float32 for one in grads):
            is_bad = 1.0 - all_finite(grads).float()
            norms = norms_of([dense(one) for one in grads], 2.0) if wants_norm else None
            return Seen(is_bad, None if norms is None else norm_over(norms))
        # Exact: squares of float32 fit into float64. The compiled kernel halves the time.
        squares = self._reader.squares(grads)
        is_bad = _on_host(float(not np.isfinite(squares).all()))
        return Seen(is_bad, _on_host(float(np.sqrt(squares.sum()))))

    def _on_accelerator(self, grads: Sequence[Tensor], wants_norm: bool) -> Seen:
        if not wants_norm:
            return Seen(1.0 - all_finite(grads).float(), None)
        device = grads[0].device
        if device not in self._on_device:
            self._on_device[device] = GradientsOnDevice(device, self._faults)
        found = self._on_device[device].read([dense(one) for one in grads])
        return Seen((found[NUM_NONFINITE] != 0.0).any().float(), norm_over(found[NORM]))


def _together(seen: Sequence[Seen]) -> Seen:
    """The results of several devices combined, on an accelerator if there is one."""
    home = max((one.is_bad.device for one in seen), key=lambda device: device.type != "cpu")
    flags = [to_device(one.is_bad, home) for one in seen]
    norms = [to_device(one.norm, home) for one in seen if one.norm is not None]
    return Seen(torch.stack(flags).max(), norm_over(torch.stack(norms)) if norms else None)


def _on_host(number: float) -> Tensor:
    """A tensor on the CPU, whatever torch's default device and dtype are."""
    return torch.tensor(number, dtype=torch.float32, device="cpu")
