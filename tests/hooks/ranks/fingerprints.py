"""Fingerprints by hand: one number stands for each parameter."""

from collections.abc import Sequence

import numpy as np

from runwatch_hooks.ranks.letters import Fingerprint


def fingerprint(
    step: int,
    *values: int,
    ranks: Sequence[int] = (0, 1),
    first_key: int = 1,
    is_bound: bool = False,
) -> Fingerprint:
    """Of parameters whose keys are numbered from `first_key` on."""
    keys = np.arange(first_key, first_key + len(values))
    return Fingerprint(
        step=step,
        ranks=tuple(ranks),
        is_bound=is_bound,
        keys=keys.astype("<u4").tobytes(),
        values=np.array(values).astype("<u4").tobytes(),
    )
