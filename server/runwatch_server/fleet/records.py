"""The overview of runs: filter, rows and counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.messages import TEXT_LIMIT
from runwatch.vocabulary import RunId, RunState, Severity

_OWNER_KEYS: Final = ("owner", "user")


class Order(StrEnum):
    """The order of runs."""

    TROUBLE = "trouble"
    NEWEST = "newest"
    NAME = "name"


class Group(StrEnum):
    """Which runs are shown."""

    ALL = "all"
    TROUBLE = "trouble"
    """An alert fires; or the run is lost, stalled or failed; or nobody has acknowledged an alert
    that fired when it ended, or that settled worse."""
    LIVE = "live"
    """Not ended."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFilter:
    """Which runs are wanted, and in what order."""

    project: str | None = None
    """The project to which the caller's key is bound; None: every project."""
    group: Group = Group.ALL
    run_group: str | None = None
    """Name of a group of runs that repeat one another; None: runs of any group or of none."""
    state: RunState | None = None
    search: str = ""
    """Part of a run's name, project, group, id, host or configuration, which includes its owner."""
    order: Order = Order.TROUBLE


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One run in the overview."""

    id: RunId
    name: str
    project: str
    run_group: str | None
    owner: str | None
    host: str | None
    state: RunState
    created_at: float
    ended_at: float | None
    attempt: int
    last_step: int | None
    last_step_at: float | None
    """When its newest steps arrived here; None if their frames were removed."""
    num_critical: int
    num_warning: int
    num_info: int
    firing_since: float | None
    num_critical_left: int
    """Critical alerts that were open when the run ended, or settled worse than before, and that
    nobody has acknowledged."""
    num_warning_left: int
    """Warnings of that kind."""

    @property
    def num_firing(self) -> int:
        return self.num_critical + self.num_warning + self.num_info

    @property
    def num_left_open(self) -> int:
        """Critical alerts and warnings that fire or are left. Just after the end of the run its
        alerts still fire."""
        firing = self.num_critical + self.num_warning
        return firing + self.num_critical_left + self.num_warning_left

    @property
    def worst_left(self) -> Severity | None:
        """The highest severity among them."""
        if self.num_critical + self.num_critical_left:
            return Severity.CRITICAL
        return Severity.WARNING if self.num_left_open else None


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """The number of runs in each group, before a group or state is chosen."""

    by_state: Mapping[RunState, int]
    num_trouble: int

    @property
    def num_all(self) -> int:
        return sum(self.by_state.values())

    @property
    def num_ended(self) -> int:
        return sum(count for state, count in self.by_state.items() if state.is_ended)

    @property
    def num_live(self) -> int:
        return self.num_all - self.num_ended


def owner_of(config: Mapping[str, object], host: Mapping[str, object]) -> str | None:
    """The run's owner: as its configuration says, else the user it runs as."""
    for facts in (config, host):
        for key in _OWNER_KEYS:
            found = facts.get(key)
            if isinstance(found, str) and found:
                return found[:TEXT_LIMIT]
    return None
