"""Which process of a job this one is."""

from dataclasses import dataclass, field

import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from runwatch_hooks.settings.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One process's place among those that train together."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Its place on its own machine."""
    restart: int = 0
    """How often the job's processes have been started anew: the store may outlive them."""
    elastic_id: str | None = None
    """The launcher's name for the job."""
    store: Store | None = field(default=None, repr=False, compare=False)
    """The way to the others; None until torch.distributed is set up."""

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    @property
    def is_leader(self) -> bool:
        """Rank 0 speaks for the run: it sends the layers, and says when the run has ended."""
        return self.rank == 0


def find_world(environment: Environment) -> World:
    """As torch.distributed says once it is set up, else as the launcher's variables say."""
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
    """The store of this life of the processes: restarted ones find another."""
    return distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
