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
        """The same in numbers and lists, of which JSON can be made. Waits for the device."""
        return {
            name: {**state, "levels": cast(Tensor, state["levels"]).tolist()}
            for name, state in cast("dict[str, dict[str, object]]", self.state_dict()).items()
        }

    def load_state_dict(self, state_dict: Mapping[str, object], /) -> None:
        """An optimizer that was not there then begins anew."""
        for number, past in self._numbered():
            state = state_dict.get(number, NormPast().state_dict())
            past.load_state_dict(cast("dict[str, object]", state))

    def _past_of(self, optimizer: Optimizer) -> NormPast:
        if optimizer not in self._pasts:
            self._roster.add(optimizer)
            self._pasts[optimizer] = NormPast()
        return self._pasts[optimizer]

    def _numbered(self) -> list[tuple[str, NormPast]]:
        """Of the optimizers that live."""
        return [(str(number), self._pasts[one]) for number, one in self._roster.living().items()]


def norm_over(norms: Tensor) -> Tensor:
    """Of all elements of which these (T,) are norms, in float32 and within its range; on the
    device where they are."""
    greatest = norms.amax()
    is_usual = (greatest > 0.0) & greatest.isfinite()
    scaled = (norms / greatest).square().sum().sqrt()
    return torch.where(is_usual, scaled * greatest, greatest)
