"""The ranks that watch one run together, and how they find each other in `attach`."""

from dataclasses import dataclass
from typing import Final

import msgspec
from torch._C._distributed_c10d import Store

from runwatch.vocabulary import RunId
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.errors import StoreError
from runwatch_hooks.ranks.job import run_of_job
from runwatch_hooks.ranks.rank_store import RankStore
from runwatch_hooks.ranks.world import World

log = OwnLog(__name__)

JOIN_TIMEOUT_S: Final = 60.0
"""How long a rank waits for rank 0 to attach as well, in `attach` and nowhere else."""


class SharedAttempt(msgspec.Struct, frozen=True):
    """The identity of an attempt, the same on all ranks."""

    run_id: RunId
    token: str
    """A random secret, by which the service recognises the ranks of one attempt."""
    started_at: float
    """Unix seconds by the clock of rank 0."""


@dataclass(frozen=True, slots=True)
class Team:
    """This process's rank, the shared attempt, and the store of its ranks."""

    world: World
    attempt: SharedAttempt
    _store: RankStore | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all ranks that train together can be reached; true for a single process."""
        return self.world.is_alone or self._store is not None

    def open_store(self, purpose: str) -> RankStore | None:
        """A store for keys of this `attach` and purpose, over a connection of its own, for one
        thread.

        None if there are no other ranks, or they cannot be reached. Raises StoreLostError.
        """
        return None if self._store is None else self._store.clone().under(purpose)


def alone(attempt: SharedAttempt, world: World | None = None) -> Team:
    """The team of a rank without others, or that cannot reach them."""
    return Team(world or World(), attempt)


def join_team(
    world: World, proposed: SharedAttempt, *, is_run_given: bool, timeout_s: float = JOIN_TIMEOUT_S
) -> Team | None:
    """Agree on the attempt that rank 0 proposes. None for a rank that is not watched.

    Without a given run id, a job restarted by torchrun finds its run again. A rank without
    torch.distributed, or that waits for rank 0 in vain, is not watched, with a warning.
    """
    if world.is_alone:
        return alone(proposed)
    if world.store is None:
        log.warning(
            "%d ranks, and torch.distributed is not set up: only rank 0 is watched "
            "(attach after init_process_group)",
            world.world_size,
        )
        return alone(proposed, world) if world.is_leader else None
    try:
        return _join(world, world.store, proposed, is_run_given=is_run_given, timeout_s=timeout_s)
    except StoreError as error:
        log.warning("rank %d is not watched: %s", world.rank, error)
        return alone(proposed, world) if world.is_leader else None


def _join(
    world: World,
    store: Store,
    proposed: SharedAttempt,
    *,
    is_run_given: bool,
    timeout_s: float,
) -> Team:
    life = RankStore(store).under(f"runwatch/{world.restart}").clone()
    number = life.count(f"attaches/{world.rank}")  # a program may watch several runs in turn
    ours = life.under(str(number))
    if not world.is_leader:
        shared = msgspec.json.decode(ours.wait("attempt", timeout_s), type=SharedAttempt)
        return Team(world, shared, ours)
    if not is_run_given and world.elastic_id is not None:
        found = run_of_job(world.elastic_id, number)
        proposed = msgspec.structs.replace(proposed, run_id=found or proposed.run_id)
    ours.put("attempt", msgspec.json.encode(proposed))
    return Team(world, proposed, ours)
