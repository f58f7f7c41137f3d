"""Reading by torch's own operations, wherever there is a torch.

Two readings of each gradient, its norm and its greatest magnitude; what needs a third is had more
cheaply. `nonfinite` is 1 where the greatest magnitude is not finite, and norm and magnitude then
show NaN or infinity themselves; zeros are counted among 1024 sampled elements.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from runwatch_hooks.measuring.sampled_updates import sample


class ForeachReader:
    """A few launches, however many tensors there are, but for the counting of zeros."""

    def read(self, flats: Sequence[Tensor]) -> Tensor:
        wide = [flat.float() for flat in flats]
        greatest = norms_of(wide, torch.inf)
        samples = [sample(flat) for flat in wide]
        zeros = [(one == 0).sum(dtype=torch.float32) / one.numel() for one in samples]
        is_bad = (~greatest.isfinite()).float()
        return torch.stack([norms_of(wide, 2.0), greatest, is_bad, torch.stack(zeros)])


def norms_of(flats: Sequence[Tensor], order: float) -> Tensor:
    """(T,), in a few launches however many tensors there are."""
    norms = torch._foreach_norm(  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        list(flats), order
    )
    return torch.stack(norms)
