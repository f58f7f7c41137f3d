"""Rank 0 and its peers over a store in memory: parts are joined, or done without, in order."""

import math
from functools import partial

import numpy as np
import pytest
from tests.hooks.ranks.fingerprints import fingerprint
from tests.hooks.ranks.parts import part_row, whole_row
from tests.waiting import LONGEST_S, until
from torch._C._distributed_c10d import HashStore

from runwatch.nonfinite import is_absent
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.follower import MAX_UNREAD, Follower
from runwatch_hooks.ranks.leader import Leader
from runwatch_hooks.ranks.letters import BATCH, batch_key
from runwatch_hooks.statistics.totals import GRAD_NORM, STATS
from runwatch_hooks.step.open_rows import Peers
from runwatch_hooks.step.row import Row


class Ranks:
    """Rank 0 and others, each with the rows that it let out."""

    def __init__(
        self, world_size: int, *, patience_s: float = LONGEST_S, witness_s: float = LONGEST_S
    ) -> None:
        store = RankStore(HashStore())
        self.rows: list[list[Row]] = [[] for _ in range(world_size)]
        self.leader = Leader(
            store,
            world_size,
            self.rows[0].append,
            patience_s=patience_s,
            witness_s=witness_s,
        )
        self.others = {
            rank: Follower(store, rank, self.rows[rank].append) for rank in range(1, world_size)
        }
        self.leader.start()
        for one in self.others.values():
            one.start()

    def close(self) -> None:
        for one in self.others.values():
            one.close(LONGEST_S)
        self.leader.close(LONGEST_S)


def norms(row: Row) -> list[float]:
    assert row.stats is not None
    found: list[float] = row.stats.reshape(len(STATS), -1)[GRAD_NORM].tolist()
    return found


def test_a_row_waits_for_every_part_and_is_whole_then() -> None:
    ranks = Ranks(3)
    ranks.leader.put(part_row(0, num_ranks=3, grad_norm=[2.0, 1.0]))
    ranks.others[2].put(part_row(0, num_ranks=3, grad_norm=[6.0, 2.0]))
    ranks.others[1].put(part_row(0, num_ranks=3, grad_norm=[3.0, 2.0]))
    until(lambda: len(ranks.rows[0]) == 1)
    ranks.close()

    assert norms(ranks.rows[0][0]) == [7.0, 3.0]
    assert ranks.rows[0][0].metrics["grad_norm"] == pytest.approx(math.sqrt(58))


def test_a_number_that_is_logged_does_not_overtake_the_row_before_it() -> None:
    ranks = Ranks(2)
    ranks.leader.put(part_row(0, grad_norm=[3.0, 0.0]))
    ranks.leader.put(whole_row(0, val_loss=1.0))
    ranks.others[1].put(part_row(0, grad_norm=[4.0, 0.0]))
    until(lambda: len(ranks.rows[0]) == 2)
    ranks.close()

    assert ["val_loss" in row.metrics for row in ranks.rows[0]] == [False, True]


def test_other_ranks_rows_go_on_without_their_layers() -> None:
    ranks = Ranks(2)
    ranks.others[1].put(part_row(0, grad_norm=[4.0, 0.0]))
    ranks.close()

    [row] = ranks.rows[1]
    assert (row.layout, row.stats, row.sharing) == (None, None, None)


def test_a_rank_that_does_not_come_is_done_without_and_named_once() -> None:
    ranks = Ranks(2, patience_s=0.05)
    for step in range(3):
        ranks.leader.put(part_row(step, grad_norm=[3.0, 1.0]))
    until(lambda: len(ranks.rows[0]) == 3)
    notices = ranks.leader.take_notices()
    ranks.close()

    assert all(is_absent(np.array(norms(row), np.float32)).all() for row in ranks.rows[0])
    assert all("grad_norm" not in row.metrics for row in ranks.rows[0])
    assert notices == ["no parts came from rank 1 for step 0: its layers are not measured"]


def test_a_rank_that_comes_back_is_waited_for_again() -> None:
    ranks = Ranks(2, patience_s=1.0)
    ranks.leader.put(part_row(0, grad_norm=[3.0, 1.0]))
    until(lambda: len(ranks.rows[0]) == 1)

    def is_whole() -> bool:
        """The next row: rank 0 may not have heard of the other one's return yet."""
        step = len(ranks.rows[0])
        ranks.others[1].put(part_row(step, grad_norm=[4.0, 0.0]))
        ranks.leader.put(part_row(step, grad_norm=[3.0, 0.0]))
        until(lambda: len(ranks.rows[0]) == step + 1)
        return norms(ranks.rows[0][step]) == [5.0, 0.0]

    until(is_whole)
    ranks.close()


def test_what_is_broken_in_one_part_is_broken_in_the_whole_though_others_are_missing() -> None:
    ranks = Ranks(3, patience_s=0.05)
    ranks.leader.put(part_row(0, num_ranks=3, grad_norm=[math.nan, 1.0], nonfinite=[2.0, 0.0]))
    until(lambda: len(ranks.rows[0]) == 1)
    ranks.close()

    [row] = ranks.rows[0]
    assert math.isnan(norms(row)[0])
    assert math.isnan(row.metrics["grad_norm"])
    assert row.urgent


def test_the_rank_is_named_whose_loss_broke_the_gradients_of_all() -> None:
    ranks = Ranks(3)
    ranks.leader.put(whole_row(5, loss=1.0, nonfinite=4.0))
    ranks.others[2].put(whole_row(5, loss=math.nan))
    until(lambda: len(ranks.rows[0]) == 1)
    ranks.close()

    assert ranks.rows[0][0].metrics["loss_broken_on"] == 2.0


def test_gradients_that_broke_without_a_loss_go_on_unwitnessed() -> None:
    ranks = Ranks(2, witness_s=0.05)
    ranks.leader.put(whole_row(5, loss=1.0, nonfinite=4.0))
    until(lambda: len(ranks.rows[0]) == 1)
    ranks.close()

    assert "loss_broken_on" not in ranks.rows[0][0].metrics


def test_the_end_brings_the_last_rows_out() -> None:
    ranks = Ranks(2)
    for step in range(20):
        ranks.leader.put(part_row(step, grad_norm=[3.0, 0.0]))
        ranks.others[1].put(part_row(step, grad_norm=[4.0, 0.0]))
    ranks.close()

    assert [row.step for row in ranks.rows[0]] == list(range(20))
    assert all(norms(row) == [5.0, 0.0] for row in ranks.rows[0])


def test_the_last_word_of_a_rank_is_said_though_nobody_has_read_the_others() -> None:
    store = RankStore(HashStore())
    follower = Follower(store, 1, lambda row: None)
    follower.start()
    for number in range(MAX_UNREAD):
        follower.put_fingerprints([fingerprint(8, 5)])
        until(partial(store.holds, batch_key(1, number)))
    follower.close(LONGEST_S)

    last = store.get(batch_key(1, MAX_UNREAD))
    assert last is not None
    assert BATCH.decode(last).is_last


def test_the_rank_whose_parameters_stand_apart_learns_of_it_and_no_other() -> None:
    ranks = Ranks(4)
    everyone: dict[int, Peers] = {0: ranks.leader, **ranks.others}
    for step, odd in ((0, 7), (8, 9)):
        for rank, one in everyone.items():
            value = odd if rank == 3 else 7
            one.put_fingerprints([fingerprint(step, value, ranks=range(4))])
    until(lambda: all(one.standing.has_drifted is not None for one in everyone.values()))
    until(lambda: everyone[3].standing.has_drifted is True)
    ranks.close()

    assert [everyone[rank].standing.has_drifted for rank in range(3)] == [False] * 3


def test_the_rank_that_is_slow_learns_by_how_much_and_so_does_one_whose_loss_is_apart() -> None:
    ranks = Ranks(4)
    everyone: dict[int, Peers] = {0: ranks.leader, **ranks.others}
    for rank, one in everyone.items():
        one.put_fingerprints([fingerprint(0, 7, ranks=range(4))])
        for step in range(20):
            one.put(whole_row(step, own_time=0.3 if rank == 2 else 0.1, loss=1.0 + (rank == 3)))
    until(lambda: not any(math.isnan(one.standing.lag_s) for one in everyone.values()))
    ranks.close()

    assert [everyone[rank].standing.lag_s for rank in range(4)] == pytest.approx(
        [0.0, 0.0, 0.2, 0.0]
    )
    assert [everyone[rank].standing.loss_gap for rank in range(4)] == pytest.approx(
        [0.0, 0.0, 0.0, 1.0]
    )


def test_ranks_that_are_no_replicas_are_not_compared_by_their_time() -> None:
    ranks = Ranks(2)
    for step in range(20):
        ranks.leader.put(whole_row(step, own_time=0.1, loss=1.0))
        ranks.others[1].put(whole_row(step, own_time=0.4, loss=1.0))
    until(lambda: not math.isnan(ranks.others[1].standing.loss_gap))
    ranks.close()

    assert math.isnan(ranks.others[1].standing.lag_s)
