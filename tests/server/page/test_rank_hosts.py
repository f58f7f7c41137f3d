"""Hosts with the ranks that train on them, in words."""

from runwatch_server.page.rank_hosts import HostRanks, ranks_of_hosts


def test_a_host_stands_once_with_all_of_its_ranks() -> None:
    hosts = {0: "node-1", 1: "node-1", 2: "node-2", 3: "node-1"}

    assert ranks_of_hosts(hosts) == [
        HostRanks("node-1", "ranks 0 to 1, 3"),
        HostRanks("node-2", "rank 2"),
    ]


def test_the_first_rank_is_named_beside_others() -> None:
    assert ranks_of_hosts({0: "node-1", 1: "node-2"})[0] == HostRanks("node-1", "rank 0")


def test_the_host_of_the_only_rank_needs_no_number() -> None:
    assert ranks_of_hosts({0: "node-1"}) == [HostRanks("node-1", "")]
