"""Ranks find one another over a store, here one in memory that several threads share."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import LONGEST_S, until
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore

from runwatch.ulids import is_ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.ranks import (
    RankStore,
    SharedAttempt,
    StoreLostError,
    StoreTimeoutError,
    Team,
    World,
    join_team,
)
from runwatch_hooks.ranks.team import run_of_job, second_client


def _proposed(name: str) -> SharedAttempt:
    return SharedAttempt(RunId(f"run-{name}"), f"token-{name}", 1.0)


def _join(
    store: Store | None, rank: int, *, name: str, given: bool = False, restart: int = 0
) -> Team | None:
    world = World(rank=rank, world_size=3, store=store, restart=restart, elastic_id="job")
    return join_team(world, _proposed(name), is_run_given=given, timeout_s=LONGEST_S)


def _joined(
    store: Store, names: str, *, given: bool = True, restart: int = 0
) -> list[SharedAttempt | None]:
    """What three ranks agree upon, each proposing a name of its own."""
    with ThreadPoolExecutor(3) as pool:
        joining = [
            pool.submit(_join, store, rank, name=names[rank], given=given, restart=restart)
            for rank in range(3)
        ]
        teams = [one.result() for one in joining]
    return [None if team is None else team.attempt for team in teams]


def test_all_ranks_take_the_attempt_of_rank_0() -> None:
    assert _joined(HashStore(), "abc") == [_proposed("a")] * 3


def test_a_second_watch_of_the_same_processes_has_an_attempt_of_its_own() -> None:
    store = HashStore()
    _joined(store, "abc")

    assert _joined(store, "def") == [_proposed("d")] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="the launcher is looked up in /proc")
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "another"])
def test_restarted_ranks_open_the_next_attempt_of_the_same_run(is_kept: bool) -> None:
    store = HashStore()
    [first, *_] = _joined(store, "abc", given=False)

    again = store if is_kept else HashStore()
    second = _joined(again, "xyz", given=False, restart=1)

    assert first is not None
    assert is_ulid(first.run_id)
    assert second == [SharedAttempt(first.run_id, "token-x", 1.0)] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="the launcher is looked up in /proc")
def test_several_runs_of_one_job_and_those_of_other_jobs_have_ids_of_their_own() -> None:
    found = [
        run_of_job("job", 1),
        run_of_job("job", 2),
        run_of_job("other", 1),
        run_of_job("job", 1, parent=os.getpid()),
    ]

    assert len(set(found)) == 4
    assert found[0] == run_of_job("job", 1)
    assert run_of_job("job", 1, parent=2**30) is None


def test_without_a_store_only_rank_0_is_watched(caplog: pytest.LogCaptureFixture) -> None:
    teams = [_join(None, rank, name="a") for rank in range(3)]

    assert [team is None for team in teams] == [False, True, True]
    assert "attach after init_process_group" in caplog.text


def test_a_rank_that_waits_in_vain_for_rank_0_goes_on_unwatched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(rank=2, world_size=3, store=HashStore())

    assert join_team(world, _proposed("a"), is_run_given=False, timeout_s=0.05) is None
    assert "rank 2 is not watched" in caplog.text


def test_a_process_alone_needs_no_store() -> None:
    team = join_team(World(), _proposed("a"), is_run_given=False)

    assert team is not None
    assert team.open_store("anything") is None


def test_values_pass_byte_for_byte_and_each_purpose_has_its_own_keys() -> None:
    store = RankStore(HashStore())
    store.under("a").put("key", b"\x00\xff\n")

    assert store.under("a").get("key") == b"\x00\xff\n"
    assert store.under("b").get("key") is None


@pytest.fixture(params=["tcp", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Of each kind that `init_process_group` may be given, under a prefix as torch puts it."""
    kinds: dict[str, Callable[[], Store]] = {
        "tcp": lambda: TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False),
        "file": lambda: FileStore(str(tmp_path / "store"), 2),
        "memory": HashStore,
    }
    return PrefixStore("default_pg", kinds[request.param]())


def cloned(store: Store) -> RankStore:
    return RankStore(store).clone()


def connected_again(store: Store) -> RankStore:
    """As before torch 2.8."""
    return RankStore(second_client(store))


@pytest.mark.parametrize("again", [cloned, connected_again])
def test_another_connection_has_the_same_keys(
    store: Store, again: Callable[[Store], RankStore]
) -> None:
    first, second = again(store).under("a"), again(store).under("a").clone()
    first.put("key", b"\x00\xff\n")

    # A TCPStore's server answers no `set`: another connection may be served before it.
    assert until(lambda: second.get("key")) == b"\x00\xff\n"
    assert [first.count("attaches"), second.count("attaches")] == [1, 2]


def test_a_store_that_takes_no_second_connection_is_named() -> None:
    with pytest.raises(StoreLostError, match="a Store takes no second connection"):
        second_client(Store())


def test_the_first_decision_stands() -> None:
    store = RankStore(HashStore())

    assert [store.decide("what", "commit"), store.decide("what", "abort")] == ["commit"] * 2


def test_waiting_for_a_key_ends_when_its_time_is_up() -> None:
    with pytest.raises(StoreTimeoutError, match="never"):
        RankStore(HashStore()).wait("never", 0.05)
