"""Which rank of those that stand still holds up the others, and what is said of it."""

from collections.abc import Sequence

import msgspec

from runwatch.stalls import Held, Stage, Stall, StalledRank
from runwatch.vocabulary import Phase
from runwatch_server.alerts.absence.standing import NOWHERE, Standing, standing_of
from runwatch_server.runs.rank_activity import RankFacts

BACKWARD = Stall(45.0, Stage.BACKWARD, waits=True, place="train.py:40 in main")
LOADING = Stall(45.0, Stage.DATA, waits=False, place="data.py:17 in read")
FORWARD = Stall(45.0, Stage.FORWARD, waits=False, place="model.py:9 in forward")
BARRIER = Stall(45.0, Stage.COLLECTIVE, waits=True, place="train.py:50 in main")
READS_LOSS = Stall(45.0, Stage.PROGRAM, waits=False, place="train.py:44 in main")
"""A wait for the device that cannot be told from any other line."""


def rank_facts(rank: int, *, last_step: int | None = 9, contact_age_s: float = 5.0) -> RankFacts:
    return RankFacts(
        attempt=1,
        rank=rank,
        contact_age_s=contact_age_s,
        step_age_s=61.0,
        has_spoken=True,
        has_stepped=True,
        last_step=last_step,
        phase=Phase.TRAIN,
        step_time_s=0.1,
        lr_scale=1.0,
        dropped_rows=0,
        spooled_frames=0,
    )


def standing(*stalls: Stall, steps: Sequence[int] = (), hosts: bool = False) -> Standing:
    """Of ranks of which each told one stall, after step 9 unless it is given."""
    last_steps = steps or [9] * len(stalls)
    told = [
        StalledRank(rank, step, None, stall)
        for rank, (step, stall) in enumerate(zip(last_steps, stalls, strict=True))
    ]
    team = [rank_facts(rank, last_step=step) for rank, step in enumerate(last_steps)]
    names = {rank: f"node-{rank}" for rank in range(len(stalls))} if hosts else {}
    return standing_of(told, team, names)


def apart(found: Standing) -> list[int]:
    return [one.rank for one in found.ranks if one.is_apart]


def test_the_rank_that_works_while_the_others_wait_is_named_with_its_host() -> None:
    found = standing(BACKWARD, LOADING, BACKWARD, BACKWARD, hosts=True)

    assert apart(found) == [1]
    assert found.words == (
        "rank 1 on node-1 stands in the data loader (data.py:17 in read), "
        "the others stand in the backward pass (train.py:40 in main)"
    )


def test_of_two_ranks_the_one_that_does_not_wait_is_named() -> None:
    found = standing(FORWARD, BACKWARD)

    assert apart(found) == [0]
    assert found.words == (
        "rank 0 stands in the forward pass (model.py:9 in forward), "
        "rank 1 stands in the backward pass (train.py:40 in main)"
    )


def test_of_two_ranks_the_one_that_loads_data_is_named() -> None:
    """The other may wait for the device at any line of the program."""
    assert apart(standing(READS_LOSS, LOADING)) == [1]


def test_no_rank_is_blamed_where_most_load_data() -> None:
    """The filesystem of all of them hangs."""
    found = standing(LOADING, LOADING, LOADING, BACKWARD)

    assert apart(found) == []
    assert found.words.startswith("ranks 0, 1 and 2 stand in the data loader (data.py:17 in read)")


def test_two_ranks_that_wait_at_different_places_are_both_told_and_none_is_blamed() -> None:
    found = standing(BARRIER, BACKWARD)

    assert apart(found) == []
    assert found.words == (
        "rank 0 stands in a collective operation (train.py:50 in main), "
        "rank 1 stands in the backward pass (train.py:40 in main)"
    )


def test_of_many_ranks_the_one_that_waits_elsewhere_is_named() -> None:
    assert apart(standing(BACKWARD, BACKWARD, BACKWARD, BARRIER)) == [3]


def test_a_rank_a_step_behind_is_named_if_it_does_not_wait() -> None:
    """On accelerators ranks run ahead, and stand where they need a result."""
    found = standing(READS_LOSS, LOADING, READS_LOSS, steps=[9, 8, 9])

    assert apart(found) == [1]


def test_a_rank_a_step_behind_that_waits_is_not_blamed() -> None:
    """Another one has left out the operation in which it waits."""
    assert apart(standing(BARRIER, BACKWARD, steps=[8, 9])) == []


def test_ranks_at_one_place_are_told_as_one() -> None:
    found = standing(READS_LOSS, READS_LOSS, READS_LOSS)

    assert apart(found) == []
    assert found.words == "all 3 ranks stand in the program's own code (train.py:44 in main)"


def test_a_single_process_is_told_by_its_place() -> None:
    assert standing(LOADING).words == "it stands in the data loader (data.py:17 in read)"


def test_a_rank_that_says_nothing_any_more_is_named_before_what_the_others_do() -> None:
    told = [StalledRank(rank, 9, None, BACKWARD) for rank in (0, 2)]
    team = [rank_facts(0), rank_facts(1, contact_age_s=52.0), rank_facts(2)]

    found = standing_of(told, team, {1: "node-b"})

    assert found.words == (
        "rank 1 on node-b has sent nothing for 52 s, "
        "the others stand in the backward pass (train.py:40 in main)"
    )
    assert apart(found) == []


def test_what_a_rank_told_before_its_newest_step_is_left_out() -> None:
    told = [StalledRank(0, 9, None, BACKWARD), StalledRank(1, 8, None, LOADING)]

    found = standing_of(told, [rank_facts(0), rank_facts(1)], {})

    assert [one.rank for one in found.ranks] == [0]
    assert "rank 1" not in found.words


def test_what_a_rank_told_counts_if_its_steps_are_not_known_since_a_restart() -> None:
    told = [StalledRank(0, 9, None, LOADING)]

    assert standing_of(told, [rank_facts(0, last_step=None)], {}).words


def test_ranks_that_told_nothing_stand_nowhere() -> None:
    assert standing_of([], [rank_facts(0), rank_facts(1)], {}) == NOWHERE


def test_many_ranks_apart_are_counted_and_a_few_named() -> None:
    elsewhere = [LOADING] * 5
    found = standing(*elsewhere, *([BACKWARD] * 59))

    assert apart(found) == [0, 1, 2, 3, 4]
    assert found.words == (
        "ranks 0, 1, 2 and 2 others stand in the data loader (data.py:17 in read), "
        "the others stand in the backward pass (train.py:40 in main)"
    )


def test_of_very_many_ranks_each_place_is_kept() -> None:
    odd = msgspec.structs.replace(BACKWARD, place="train.py:99 in main")
    found = standing(*([BACKWARD] * 500), odd, *([BACKWARD] * 500), LOADING)

    assert len(found.ranks) == 16
    assert {one.stall for one in found.ranks} == {BACKWARD, odd, LOADING}
    assert found.ranks[0].rank == 1001


def test_what_the_system_keeps_waiting_is_said_with_the_place() -> None:
    on_disk = msgspec.structs.replace(LOADING, held=Held.CHILD_ON_DISK)
    place = "in the data loader (data.py:17 in read; a child process waits for a disk or a network"

    assert standing(on_disk).words == f"it stands {place} filesystem)"
    assert standing(on_disk, on_disk).words == f"all 2 ranks stand {place} filesystem)"
