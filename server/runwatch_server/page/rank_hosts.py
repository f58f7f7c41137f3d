"""The hosts of a run, each with the ranks that train on it."""

from collections.abc import Mapping
from dataclasses import dataclass

from runwatch_server.page.alert_groups import ranks_in_words


@dataclass(frozen=True, slots=True)
class HostRanks:
    """A host and its ranks in words; empty if the run has no other."""

    host: str
    ranks: str


def ranks_of_hosts(hosts: Mapping[int, str]) -> list[HostRanks]:
    """`hosts` names the host of each rank. In the order of each host's first rank."""
    ranks: dict[str, list[int]] = {}
    for rank, host in hosts.items():
        ranks.setdefault(host, []).append(rank)
    is_alone = len(hosts) == 1
    return [
        HostRanks(host, "" if is_alone else ranks_in_words(own) or "rank 0")
        for host, own in ranks.items()
    ]
