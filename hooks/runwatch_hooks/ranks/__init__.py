"""Several processes that train together: which one this is, and what they share.

`Team.open_store(purpose)` is the way to the peers: small values by key, no collective, nothing
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
