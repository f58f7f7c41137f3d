"""Several processes that train together: which rank this is, and what the ranks tell each other.

They communicate through `Team.open_store(purpose)`, a key-value store: no collectives, and nothing
on the training thread.
"""

from runwatch_hooks.ranks.team import (
    RankStore,
    SharedAttempt,
    StoreError,
    StoreLostError,
    StoreTimeoutError,
    Team,
    World,
    alone,
    find_world,
    join_team,
)

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
