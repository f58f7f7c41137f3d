"""What is known of one step once it has ended, before any number has left its device."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from runwatch.layouts import Layout
from runwatch_hooks.governor import Sampled
from runwatch_hooks.measuring.sharing import Sharing
from runwatch_hooks.seeing.numbers import Number


class Stage(IntEnum):
    """Where gradients were read; a later one in this order does not replace an earlier one."""

    UNSCALED_PRECLIP = 0
    PRECLIP = 1
    PRESTEP = 2
    """As the optimizer used them: clipped already, where something we do not see clips."""
    CLOSURE_POST = 3
    """After a step that evaluates its own closure (LBFGS): those of the last evaluation."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What the probe knows of one step."""

    layout: Layout | None
    """None where no gradient was read, unless it was left out to save its cost."""
    stats: Mapping[tuple[int, ...], Tensor]
    """(S, T) of each device, by the slots that its columns are."""
    numbers: Mapping[str, Number]
    """`lr`, `clip_coef`, `loss_scale`, `skipped`, `optimizer_steps`, `alternating`."""
    stage: Stage | None
    sampled: Sampled | None = None
    """What was read of the step; None where none was seen."""
    sharing: Sharing | None = None
    """Whose parts the stats are of; None where they are of whole tensors."""
    at_rest: tuple[int, ...] = ()
    """Slots of what an optimizer stepped by a learning rate of 0."""
    notices: tuple[str, ...] = ()
    """What is not watched, or cannot be."""
    changes: tuple[str, ...] = ()
    """What is watched in the place of something else."""
    omissions: tuple[str, ...] = ()
    """What the program was found to leave out."""
