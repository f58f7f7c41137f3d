"""The rank of this process, and the number of ranks."""

from dataclasses import dataclass, field

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from runwatch_hooks.settings.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One process among those that train together."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Its rank on its own machine."""
    restart: int = 0
    """How often the job's processes have been restarted; the store may outlive them."""
    elastic_id: str | None = None
    """The launcher's name for the job."""
    store: Store | None = field(default=None, repr=False, compare=False)
    """torch.distributed's store; None until that is initialised."""

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0, which sends the layers and the end of the run."""
        return self.rank == 0


def find_world(environment: Environment) -> World:
    """From torch.distributed if it is initialised, otherwise from the launcher's variables."""
    if dist.is_available() and dist.is_initialized():
        return World(
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            local_rank=environment.local_rank,
            restart=environment.restart,
            elastic_id=environment.elastic_id,
            store=_default_store(),
        )
    return World(
        rank=environment.rank,
        world_size=environment.world_size,
        local_rank=environment.local_rank,
    )


def _default_store() -> Store:
    """The store of the current processes; restarted ones get another."""
    return distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
