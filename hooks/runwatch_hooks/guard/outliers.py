"""Which of a run's optimizer steps are by gradients far outside their past."""

from collections.abc import Mapping, Sequence
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.faults import Faults
from runwatch_hooks.guard.clipped_norms import ClippedNorms
from runwatch_hooks.guard.norm_past import NormPast, Verdict
from runwatch_hooks.seeing.known_optimizers import Roster


class Outliers:
    """Each optimizer has a past of its own: a critic's gradients say nothing of a generator's.

    It has a state that goes back with a rollback, or a step that is trained again would be judged
    by what came after it.
    """

    def __init__(self, optimizers: Sequence[Optimizer], faults: Faults) -> None:
        self._roster = Roster()
        self._pasts: WeakKeyDictionary[Optimizer, NormPast] = WeakKeyDictionary()
        for optimizer in optimizers:
            self._past_of(optimizer)
        self.clipped = ClippedNorms(faults)

    def judge(self, optimizer: Optimizer, norm: Tensor, is_bad: Tensor) -> Verdict:
        """As `NormPast.judge`."""
        return self._past_of(optimizer).judge(norm, is_bad)

    def state_dict(self) -> dict[str, object]:
        """By the numbers of the optimizers' coming; tensors are on their devices."""
        return {number: past.state_dict() for number, past in self._numbered()}

    def plain_state(self) -> dict[str, object]:
        """The same in what strict JSON has too. Waits for the device."""
        return {number: past.plain_state() for number, past in self._numbered()}

    def load_state_dict(self, state_dict: Mapping[str, object], /) -> None:
        """An optimizer that was not there then begins anew. Raises KeyError, TypeError and
        ValueError, and takes nothing then."""
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
        """Of the optimizers that live."""
        return [(str(number), self._pasts[one]) for number, one in self._roster.living().items()]


def _mapping(state: object) -> Mapping[str, object]:
    if not isinstance(state, Mapping):
        raise TypeError(f"found {type(state).__name__}, wanted an optimizer's past")
    return cast("Mapping[str, object]", state)


def norm_over(norms: Tensor) -> Tensor:
    """Of all elements of which these (T,) are norms, in float32 and within its range; on the
    device where they are."""
    greatest = norms.amax()
    is_usual = (greatest > 0.0) & greatest.isfinite()
    scaled = (norms / greatest).square().sum().sqrt()
    return torch.where(is_usual, scaled * greatest, greatest)
