"""What the program allows to be done to its run. The service cannot override it."""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, SupportsFloat, cast

from runwatch.commands import ACTION_KINDS
from runwatch_hooks.errors import AttachError
from runwatch_hooks.settings.arguments import count_of

Guarding = bool | Literal["outliers"]
"""Which steps the guard turns into no-ops: none, non-finite ones, or outliers as well."""

DEFAULT_ALLOW: Final = ("checkpoint", "detail")
"""The actions that do not change the training."""
DEFAULT_GOOD_AFTER: Final = 10
"""Healthy steps after a capture until the saved state counts as good."""


_OPTIONAL: Final = ("snapshot_every", "checkpoint_every", "histograms", "activations")
_COUNTS: Final = {
    **dict.fromkeys((*_OPTIONAL, "good_after", "keep", "max_bundles", "bundle_mib"), 1),
    "snapshots": 3,
}
"""Options that are whole numbers, each with its smallest allowed value."""
_NO_ANSWER: Final = (TypeError, ValueError, RuntimeError)
"""What an array or a tensor of several elements raises when it is compared or made a number."""


def kinds_of(allow: object, known: Collection[str] = ACTION_KINDS) -> tuple[str, ...]:
    """The allowed kinds of action. Raises AttachError for one that is not known, and for a single
    string, which would otherwise be iterated letter by letter."""
    if isinstance(allow, str) or not isinstance(allow, Iterable):
        raise AttachError(f"allow: found {allow!r}, wanted a tuple of some of {known}")
    kinds = tuple(cast("Iterable[str]", allow))
    _check_kinds(kinds, known)
    return kinds


def _check_kinds(kinds: Iterable[str], known: Collection[str]) -> None:
    unknown = [kind for kind in kinds if not _is_one_of(kind, known)]
    if unknown:
        raise AttachError(f"allow: found {unknown[0]!r}, wanted some of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be done to a run, and what is kept and measured for it."""

    allow: Sequence[str] = DEFAULT_ALLOW
    """Kinds of action that may be carried out, whatever the service asks for."""
    snapshot_every: int | None = None
    """Steps between two snapshots. None: at least 50, and as many as keep the time for captures
    below a hundredth (`actions.pace`). Snapshots are taken only if `allow` contains `rollback`."""
    snapshots: int = 3
    """Number of snapshots kept in memory."""
    good_after: int = DEFAULT_GOOD_AFTER
    """Healthy steps after a capture until the saved state counts as good."""
    checkpoints: Path | None = None
    """Folder for the hook's own checkpoints; None: none are written."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; None: only when asked."""
    keep: int = 3
    """Number of checkpoints kept on disk, in addition to the newest good ones."""
    guard: Guarding = False
    """True: a step with non-finite gradients changes nothing. "outliers": neither does a step whose
    gradient norm is far outside its recent history."""
    bundles: Path | None = None
    """Folder for the diagnostic bundles of non-finite steps; None: none are written."""
    max_bundles: int = 3
    """Bundles per run and rank, over all restarts. None is ever deleted."""
    bundle_mib: int = 2048
    """Limit on the training states in one bundle, in MiB. What exceeds it is left out, optimizer
    state first."""

    histograms: int | None = None
    """Steps between two histograms; None: only when asked."""
    activations: int | None = None
    """Steps between two measurements of activations; None: only when asked."""
    max_overhead: float | None = None
    """Share of a step's time that watching may take; above it, less is read. None, the default:
    every layer is read at every step, whatever it costs. A layer that is not read would break the
    first promise, and small models on a CPU would be thinned from the start."""

    def __post_init__(self) -> None:
        _check_kinds(self.allow, ACTION_KINDS)
        for name, least in _COUNTS.items():
            number = getattr(self, name)
            if number is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, count_of(name, number, least=least))
        if not _is_one_of(self.guard, (False, True, "outliers")):
            raise AttachError(f'guard: found {self.guard!r}, wanted True, False or "outliers"')
        share = self.max_overhead
        if share is not None and not _is_share(share):
            raise AttachError(f"max_overhead: found {share!r}, wanted a share such as 0.005")
        if self.checkpoint_every is not None and self.checkpoints is None:
            raise AttachError("checkpoint_every: found no folder, wanted `checkpoints`")


def _is_one_of(value: object, wanted: Container[object]) -> bool:
    try:
        return value in wanted
    except _NO_ANSWER:
        return False


def _is_share(share: object) -> bool:
    try:
        return isinstance(share, SupportsFloat) and 0.0 < float(share) < 1.0
    except _NO_ANSWER:
        return False
