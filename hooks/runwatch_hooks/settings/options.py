"""How a run may be acted on, as its program says: the trainer's last word."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, SupportsFloat, cast

from runwatch.commands import ACTION_KINDS
from runwatch_hooks.errors import AttachError
from runwatch_hooks.settings.arguments import count_of

Guarding = bool | Literal["outliers"]
"""Which steps the guard makes change nothing."""

DEFAULT_ALLOW: Final = ("checkpoint", "detail")
"""What changes nothing about the training."""
DEFAULT_GOOD_AFTER: Final = 10
"""Healthy steps after which a saved state counts as good."""


_OPTIONAL: Final = ("snapshot_every", "checkpoint_every", "histograms", "activations")
_COUNTS: Final = {
    **dict.fromkeys((*_OPTIONAL, "good_after", "keep", "max_bundles", "bundle_mib"), 1),
    "snapshots": 3,
}
"""Whole numbers, each with the least that it may be."""


def kinds_of(allow: object) -> tuple[str, ...]:
    """Kinds of action. Raises AttachError for a single text, which would be read by its letters."""
    if isinstance(allow, str) or not isinstance(allow, Iterable):
        wanted = f"wanted a tuple of some of {ACTION_KINDS}"
        raise AttachError(f"allow: found {allow!r}, {wanted}")
    return tuple(cast("Iterable[str]", allow))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run may be acted on."""

    allow: Sequence[str] = DEFAULT_ALLOW
    """Kinds of action; the last word, whatever the service says."""
    snapshot_every: int | None = None
    """Steps; None: 50 or more, so that captures take less than a hundredth of the time
    (`actions.pace`). Taken only where `rollback` is allowed."""
    snapshots: int = 3
    """States kept in memory."""
    good_after: int = DEFAULT_GOOD_AFTER
    checkpoints: Path | None = None
    checkpoint_every: int | None = None
    """Steps; None: only when asked."""
    keep: int = 3
    """Checkpoints on disk, beside the newest good ones."""
    guard: Guarding = False
    """Whether a step by gradients that are not finite is made to change nothing; "outliers": also
    one by gradients far outside their past."""
    bundles: Path | None = None
    """Where diagnostic bundles of non-finite steps are written; None: nowhere."""
    max_bundles: int = 3
    """Of a run and rank, restarts included; none is ever deleted."""
    bundle_mib: int = 2048
    """Of the training states in a bundle; what is more is left out, optimizers first."""

    histograms: int | None = None
    """Steps between two; None: only when asked."""
    activations: int | None = None
    """Steps between two; None: only when asked."""
    max_overhead: float | None = None
    """The share of a step's time that watching may take, beyond which less is read. None: all of
    every step is read, whatever it takes. That is the default because a layer that is not looked
    at is a promise not kept, and small models on a CPU would be thinned from the start."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.allow if kind not in ACTION_KINDS]
        if unknown:
            raise AttachError(f"allow: found {unknown[0]!r}, wanted some of {ACTION_KINDS}")
        for name, least in _COUNTS.items():
            number = getattr(self, name)
            if number is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, count_of(name, number, least=least))
        if self.guard not in (False, True, "outliers"):
            raise AttachError(f'guard: found {self.guard!r}, wanted True, False or "outliers"')
        share = self.max_overhead
        if share is not None and not (_is_number(share) and 0.0 < share < 1.0):
            raise AttachError(f"max_overhead: found {share!r}, wanted a share such as 0.005")
        if self.checkpoint_every is not None and self.checkpoints is None:
            raise AttachError("checkpoint_every: found no folder, wanted `checkpoints`")


def _is_number(share: object) -> bool:
    return isinstance(share, SupportsFloat)
