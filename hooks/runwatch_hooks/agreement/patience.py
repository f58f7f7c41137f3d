"""Timeouts after which a rank cancels a command."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts in seconds. A training thread waits only while a command is under way."""

    promise_s: float = 5.0
    """The leader, for the promises of all ranks, which their delegate threads make."""
    decide_s: float = 10.0
    """A training thread at the turn that it promised not to pass, for the decision."""
    gather_s: float = 60.0
    """A training thread at the agreed turn, for the others to arrive. Ranks that train in lockstep
    arrive within a step; a rank that is compiling or saving needs longer."""
    ready_s: float = 300.0
    """A training thread that has a rollback's state ready, for the others to read theirs, possibly
    from disk."""
    store_s: float = 5.0
    """A training thread, for a delegate that does not time out by itself because the store hangs;
    after that the rank gives up alone."""
    close_s: float = 1.0
    """The end of a run, for the delegate thread."""

    def __post_init__(self) -> None:
        for name in ("promise_s", "decide_s", "gather_s", "ready_s", "store_s", "close_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, wanted more than 0")
