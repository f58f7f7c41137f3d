"""What may be behind an alert: causes in order, the signs that speak for each, what to try."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.rules.templates import EMPTY, Template


class Sign(StrEnum):
    """What can be seen in a run around an onset, and speaks for one cause or another."""

    LR_ROSE = "lr_rose"
    LR_JUMPED = "lr_jumped"
    WARMUP_ENDED = "warmup_ended"
    LR_ZERO = "lr_zero"
    RESUMED = "resumed"
    ROLLED_BACK = "rolled_back"
    FIRST_STEPS = "first_steps"
    """It began within the first steps of the attempt."""
    SCALE_FELL = "scale_fell"
    HALF_PRECISION = "half_precision"
    """A loss scaler is at work."""
    STEPS_SKIPPED = "steps_skipped"
    LOSS_FIRST = "loss_first"
    """The loss left its past before the gradients did, or leapt out of it with them."""
    GRADIENT_FIRST = "gradient_first"
    GRADIENT_GREW = "gradient_grew"
    """The gradients had been growing for some time."""
    ONE_STEP = "one_step"
    """It was over within a few steps."""
    STAYED = "stayed"
    """It was not."""
    REPEATED = "repeated"
    """The same rule had fired before in this run."""
    ONE_LAYER = "one_layer"
    ALL_LAYERS = "all_layers"
    EMBEDDING = "embedding"
    """Where it began is an embedding, by its name."""
    ATTENTION = "attention"
    PARAMETER_BROKEN = "parameter_broken"
    UNCLIPPED = "unclipped"
    """No clipping was recorded."""
    CLIPPED = "clipped"
    STEP_SLOWER = "step_slower"
    STALLED_IN_DATA = "stalled_in_data"
    """The rank that holds up the run stands in its data loader."""
    STALLED_IN_SAVING = "stalled_in_saving"
    """It saves or loads a file."""
    STALLED_ON_DISK = "stalled_on_disk"
    """It, or a process that it has started, waits for a disk or a network filesystem."""
    RANKS_APART = "ranks_apart"
    """The ranks stand at different places, so that some wait for others."""
    PHASE_CHANGED = "phase_changed"
    """An evaluation, a checkpoint or another phase came just before."""
    NO_OPTIMIZER = "no_optimizer"
    """The hook knows that no optimizer steps layers that have a gradient."""
    NO_GRADIENT = "no_gradient"
    """The hook knows that no gradient reaches layers of an optimizer."""
    NOT_REDUCED = "not_reduced"
    """The hook knows that a wrapper should keep parameters equal, and they never were."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What may have brought it about."""

    text: str
    signs: tuple[Sign, ...] = ()
    """What speaks for it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the author of a rule knows about it."""

    causes: tuple[Cause, ...] = ()
    """The likeliest first, where nothing is known of the run."""
    try_first: Template = EMPTY
    worked_if: Template = EMPTY

    @property
    def words(self) -> str:
        """As a text with placeholders."""
        causes = "; ".join(cause.text for cause in self.causes)
        parts = [
            f"Likely causes, in order: {causes}." if causes else "",
            f"Try first: {self.try_first.text}." if self.try_first.text else "",
            f"It worked if {self.worked_if.text}." if self.worked_if.text else "",
        ]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A cause, with what was found that speaks for it."""

    text: str
    evidence: tuple[str, ...]


_DECISIVE: Final = frozenset(
    (Sign.PARAMETER_BROKEN, Sign.LR_ZERO, Sign.NO_OPTIMIZER, Sign.NO_GRADIENT, Sign.NOT_REDUCED)
)
"""They say what it is; the others only speak for it."""


def rank(causes: tuple[Cause, ...], found: dict[Sign, str]) -> tuple[Ranked, ...]:
    """Causes by their signs: one that a decisive sign names first, then those with the most; among
    equals the author's order stands. `found` holds the words for each sign that was seen."""

    def weight(cause: Cause) -> tuple[bool, int]:
        seen = [sign for sign in cause.signs if sign in found]
        return not _DECISIVE.isdisjoint(seen), len(seen)

    return tuple(
        Ranked(cause.text, tuple(found[sign] for sign in cause.signs if sign in found))
        for cause in sorted(causes, key=weight, reverse=True)
    )
