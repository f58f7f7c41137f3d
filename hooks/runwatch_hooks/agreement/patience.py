"""How long a rank waits for the others before it gives a command up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds. A training thread waits at all only while a command is under way."""

    promise_s: float = 5.0
    """The leader, for the promises of all ranks: a side thread of each has to answer."""
    decide_s: float = 10.0
    """A training thread that has come as far as it promised, for the step that was agreed."""
    gather_s: float = 60.0
    """A training thread at the agreed step, for the others to come there. Ranks that train in
    lockstep come within a step; a rank that is compiling or saving needs longer."""
    ready_s: float = 300.0
    """A training thread that has a rollback's state at hand, for the others to read theirs, which
    may lie on a disk."""
    store_s: float = 5.0
    """For the store's answer, where it says nothing at all: then the rank acts on its own."""
    close_s: float = 1.0
    """At the end of a run, for the side thread."""

    def __post_init__(self) -> None:
        for name in ("promise_s", "decide_s", "gather_s", "ready_s", "store_s", "close_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, wanted more than 0")
