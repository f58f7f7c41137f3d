"""Which of a run's optimizer steps have gradients far outside their recent history."""

from collections.abc import Mapping, Sequence
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.guard.clipped_norms import ClippedNorms
from runwatch_hooks.guard.norm_past import NormPast, Verdict
from runwatch_hooks.step.layers import Roster


class Outliers:
    """A norm history for each optimizer: a critic's gradients say nothing about a generator's.

    Its state is restored by a rollback, or a step that is trained again would be judged by later
    ones.
    """

    def __init__(self, optimizers: Sequence[Optimizer], faults: Faults) -> None:
        self._roster = Roster()
        self._pasts: WeakKeyDictionary[Optimizer, NormPast] = WeakKeyDictionary()
        for optimizer in optimizers:
            self._past_of(optimizer)
        self.clipped = ClippedNorms(faults)

    def judge(self, optimizer: Optimizer, norm: Tensor, is_bad: Tensor) -> Verdict:
        """Like `NormPast.judge`."""
        return self._past_of(optimizer).judge(norm, is_bad)

    def state_dict(self) -> dict[str, object]:
        """The histories by the optimizers' numbers; tensors are on their devices."""
        return {number: past.state_dict() for number, past in self._numbered()}

    def plain_state(self) -> dict[str, object]:
        """The histories in strict JSON. A sync."""
        return {number: past.plain_state() for number, past in self._numbered()}

    def load_state_dict(self, state_dict: Mapping[str, object], /) -> None:
        """Restore the histories. That of an optimizer which did not exist then is emptied. Raises
        KeyError, TypeError or ValueError, with nothing changed."""
        read: dict[Optimizer, NormPast] = {}
        for number, optimizer in self._roster.living().items():
            past = read[optimizer] = NormPast()
            if str(number) in state_dict:
                past.load_state_dict(_mapping(state_dict[str(number)]))
        self._pasts.update(read)

    def _past_of(self, optimizer: Optimizer) -> NormPast:
        if optimizer not in self._pasts:
            self._roster.add(optimizer)
            self._pasts[optimizer] = NormPast()
        return self._pasts[optimizer]

    def _numbered(self) -> list[tuple[str, NormPast]]:
        """The histories of the optimizers still alive, by number."""
        return [(str(number), self._pasts[one]) for number, one in self._roster.living().items()]


def _mapping(state: object) -> Mapping[str, object]:
    if not isinstance(state, Mapping):
        raise TypeError(f"found {type(state).__name__}, wanted an optimizer's past")
    return cast("Mapping[str, object]", state)


def norm_over(norms: Tensor) -> Tensor:
    """The total norm over tensors with norms (T,), computed in float32 without overflow, on their
    device."""
    greatest = norms.amax()
    is_usual = (greatest > 0.0) & greatest.isfinite()
    scaled = (norms / greatest).square().sum().sqrt()
    return torch.where(is_usual, scaled * greatest, greatest)
