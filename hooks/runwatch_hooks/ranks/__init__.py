"""Several processes that train together: which rank this is, and what the ranks tell each other.

They communicate through `Team.open_store(purpose)`, a key-value store: no collectives, and nothing
on the training thread.
"""

from runwatch_hooks.ranks.errors import StoreError, StoreLostError, StoreTimeoutError
from runwatch_hooks.ranks.rank_store import RankStore
from runwatch_hooks.ranks.team import SharedAttempt, Team, alone, join_team
from runwatch_hooks.ranks.world import World, find_world

__all__ = [
    "RankStore",
    "SharedAttempt",
    "StoreError",
    "StoreLostError",
    "StoreTimeoutError",
    "Team",
    "World",
    "alone",
    "find_world",
    "join_team",
]
