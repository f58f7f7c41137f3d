"""Where steps may be read less completely: if one rank holds everything that is read."""

from collections.abc import Sequence

from torch.optim import Optimizer

from runwatch_hooks.errors import AttachError
from runwatch_hooks.ranks.shards import is_sharded


def check_thinnable(optimizers: Sequence[Optimizer]) -> None:
    """Raises AttachError for sharded parameters: all ranks would have to skip the same steps, or
    the parts of a layer could not be joined."""
    for optimizer in optimizers:
        if any(is_sharded(one) for group in optimizer.param_groups for one in group["params"]):
            raise AttachError(
                f"max_overhead: {type(optimizer).__name__} steps sharded parameters, of which each "
                "rank reads its part of every step; wanted whole ones"
            )
