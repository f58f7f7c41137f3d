"""The keywords that an adapter passes on to `attach`."""

import os
from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from runwatch_hooks.errors import AttachError
from runwatch_hooks.settings.options import Guarding, kinds_of
from runwatch_hooks.state import Generator, HasState

ALLOWED: Final = ("checkpoint", "detail", "lower_lr", "stop")
"""No rollback: it would have to restore the framework's counters and its loader's position."""


class Keywords(TypedDict, total=False):
    """Keyword arguments of `attach`, described there."""

    project: str
    group: str
    config: Mapping[str, object]
    run_id: str
    url: str
    token: str
    spool: str | os.PathLike[str]
    extra: Mapping[str, HasState | Generator]
    checkpoints: str | os.PathLike[str]
    checkpoint_every: int
    keep: int
    bundles: str | os.PathLike[str]
    max_bundles: int
    bundle_mib: int
    guard: Guarding
    histograms: int
    activations: int
    max_overhead: float
    good_after: int
    allow: Sequence[str]


def checked(keywords: Keywords, framework: str) -> Keywords:
    """The keywords. Raises AttachError if they allow a rollback, which no framework's loop can
    follow."""
    if "rollback" in kinds_of(keywords.get("allow", ())):
        raise AttachError(
            f"allow: found 'rollback', wanted some of {ALLOWED}: {framework} counts its own steps "
            "and cannot be told to train some of them again"
        )
    return keywords
