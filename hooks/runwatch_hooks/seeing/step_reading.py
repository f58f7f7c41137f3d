"""What was read of one step, before its numbers have left their devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from runwatch.layouts import Layout
from runwatch_hooks.governor import Sampled
from runwatch_hooks.seeing.numbers import Number
from runwatch_hooks.statistics.sharing import Sharing


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
