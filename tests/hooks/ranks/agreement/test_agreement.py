"""Ranks in threads of one process: all act at one step, or none, whatever holds some of them up."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.hooks.ranks.agreement.party import BRIEF_S, LONG, Party, Seen
from tests.waiting import until
from torch._C._distributed_c10d import HashStore

from runwatch.commands import CommandState, Rollback
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.ballots import Ledger, Standing, Trial, off
from runwatch_hooks.ranks.coordinator import Patience

MakeParty = Callable[..., Party]


@pytest.fixture
def make_party() -> Iterator[MakeParty]:
    parties: list[Party] = []

    def make(patience: Patience | None = None, store: RankStore | None = None) -> Party:
        parties.append(Party(store=store) if patience is None else Party(patience, store))
        return parties[-1]

    yield make
    for party in parties:
        party.close()


def steps_of(seen: list[list[Seen]], index: int = 0) -> list[int]:
    """Where each rank saw a command end."""
    return [one[index].next_step for one in seen]


def refusals_of(seen: list[list[Seen]]) -> set[str]:
    return {one[0].ended.verdict.refusal for one in seen}


def test_all_act_at_one_step_however_far_they_are_apart(make_party: MakeParty) -> None:
    party = make_party()
    for rank in party.ranks:
        rank.step_s = 0.001 * (rank.number + 1)
    party.start()
    until(lambda: party.ranks[0].next_step > party.ranks[3].next_step + 20)

    party.order("c1")
    seen = party.wait_for_ends(1)

    assert all(one[0].ended.verdict.is_go for one in seen)
    assert len(set(steps_of(seen))) == 1


def test_two_commands_in_a_row_are_done_one_after_the_other(make_party: MakeParty) -> None:
    party = make_party()
    party.start()
    party.order("c1")
    party.order("c2")

    seen = party.wait_for_ends(2)

    assert {tuple(one.ended.command.id for one in rank) for rank in seen} == {("c1", "c2")}
    assert len(set(steps_of(seen, 0))) == len(set(steps_of(seen, 1))) == 1
    assert steps_of(seen, 0) < steps_of(seen, 1)


def test_a_rank_that_never_answers_leaves_the_others_training(make_party: MakeParty) -> None:
    party = make_party(replace(LONG, promise_s=BRIEF_S))
    party.start([1, 2])
    party.propose_without_a_leader("c1")
    party.wait_for_promises([1, 2])
    party.start([0])

    seen = party.wait_for_ends(1, [0, 1, 2])

    assert refusals_of(seen) == {"rank 3 does not answer"}
    before = party.ranks[1].next_step
    until(lambda: party.ranks[1].next_step > before + 10)


def test_without_its_leader_a_command_is_called_off_by_all(make_party: MakeParty) -> None:
    """The proposal stands in the store, and nobody is there to decide."""
    party = make_party(replace(LONG, decide_s=BRIEF_S))
    party.start([1, 2, 3])
    party.propose_without_a_leader("c1")

    seen = party.wait_for_ends(1, [1, 2, 3])

    assert len(refusals_of(seen)) == 1
    assert "waited too long for the others' promises" in refusals_of(seen).pop()


def test_a_rank_that_stops_short_of_the_agreed_step_calls_it_off(make_party: MakeParty) -> None:
    party = make_party(replace(LONG, gather_s=BRIEF_S))
    party.start([0, 1, 2])
    party.ranks[3].agreement.start(0)  # it promises, and its training stands in the first step
    party.order("c1")

    seen = party.wait_for_ends(1, [0, 1, 2])

    assert len(refusals_of(seen)) == 1
    assert "waited too long for the others at one step" in refusals_of(seen).pop()


def test_what_one_rank_cannot_do_none_does(make_party: MakeParty) -> None:
    party = make_party()
    party.ranks[2].standing = Standing(refusal="the disk is full")
    party.start()
    party.order("c1")

    seen = party.wait_for_ends(1)

    assert refusals_of(seen) == {"rank 2: the disk is full"}


STATES = ((9, 19, 29),)


def test_all_go_back_to_one_state_once_each_has_read_it(make_party: MakeParty) -> None:
    party = make_party()
    for rank in party.ranks:
        rank.standing = Standing(states=STATES)
    party.start()
    party.order("c1", Rollback())

    seen = party.wait_for_ends(1)

    assert {one[0].ended.verdict.to_step for one in seen} == {29}
    assert len(set(steps_of(seen))) == 1
    assert [rank.tried for rank in party.ranks] == [[29]] * 4


def test_a_state_that_one_rank_finds_damaged_is_gone_back_to_by_none(
    make_party: MakeParty,
) -> None:
    party = make_party()
    for rank in party.ranks:
        rank.standing = Standing(states=STATES)
    party.ranks[2].damaged = frozenset({29})
    party.ranks[3].damaged = frozenset({19})
    party.start()
    party.order("c1", Rollback())

    seen = party.wait_for_ends(1)

    assert {one[0].ended.verdict.to_step for one in seen} == {9}
    assert len(set(steps_of(seen))) == 1
    assert [rank.tried for rank in party.ranks] == [[29, 19, 9]] * 4


def test_where_no_state_is_whole_on_all_ranks_none_goes_back(make_party: MakeParty) -> None:
    party = make_party()
    for rank in party.ranks:
        rank.standing = Standing(states=((9,),))
    party.ranks[1].damaged = frozenset({9})
    party.start()
    party.order("c1", Rollback())

    seen = party.wait_for_ends(1)

    (refusal,) = refusals_of(seen)
    assert refusal.startswith("rollback: found no good state that every rank holds")
    assert "rank 0: 9; rank 1: none" in refusal


def test_a_rank_that_reads_for_ever_leaves_the_others_training(make_party: MakeParty) -> None:
    party = make_party(replace(LONG, ready_s=BRIEF_S))
    for rank in party.ranks:
        rank.standing = Standing(states=STATES)
    party.ranks[3].reads.clear()
    party.start()
    party.order("c1", Rollback())

    try:
        seen = party.wait_for_ends(1, [0, 1, 2])
        before = party.ranks[1].next_step
        until(lambda: party.ranks[1].next_step > before + 10)
    finally:
        party.ranks[3].reads.set()

    assert len(refusals_of(seen)) == 1
    assert "waited too long for the others at one step" in refusals_of(seen).pop()
    assert refusals_of(party.wait_for_ends(1)) == refusals_of(seen)


def test_a_refusal_that_no_encoding_carries_is_told_all_the_same() -> None:
    ledger = Ledger(RankStore(HashStore()), 4)
    ledger.put("1/standing/0/2", Standing("no file 'a\udcff'"))

    assert ledger.find("1/standing/0/2", Standing) == Standing("no file 'a?'")
    assert ledger.settle("1/verdict", off("no file 'a\udcff'")) == off("no file 'a?'")


def test_what_a_round_left_in_the_store_is_cleared_away_with_its_trials() -> None:
    store = RankStore(HashStore())
    ledger = Ledger(store, world_size=2)
    for stage in range(3):
        ledger.put(f"1/trial/{stage + 1}", Trial(stage))
        for rank in range(2):
            ledger.put(f"1/standing/{stage}/{rank}", Standing())

    ledger.forget(9)

    places = [f"1/standing/{stage}/{rank}" for stage in range(3) for rank in range(2)]
    assert [ledger.find(place, Standing) for place in places] == [None] * 6


def test_a_command_past_its_time_expires_for_all(make_party: MakeParty) -> None:
    party = make_party()
    party.start()
    party.order("c1", expires_at=1.0)

    seen = party.wait_for_ends(1)

    assert {one[0].ended.verdict.state for one in seen} == {CommandState.EXPIRED}
    assert not any(one[0].ended.verdict.is_go for one in seen)


def test_a_rank_that_leaves_calls_off_what_it_promised(make_party: MakeParty) -> None:
    party = make_party()
    party.start([0, 1, 2])
    party.ranks[3].agreement.start(0)
    party.order("c1")
    until(lambda: party.ranks[3].agreement.is_under_way)

    party.ranks[3].agreement.close()
    seen = party.wait_for_ends(1, [0, 1, 2])

    assert refusals_of(seen) == {"rank 3 has ended its training"}


class HangingStore(RankStore):
    """Answers until it is asked how a command ended, and then not at all."""

    def __init__(self) -> None:
        super().__init__(HashStore())
        self.goes_on = threading.Event()

    def get(self, key: str) -> bytes | None:
        if key.endswith("/verdict"):
            self.goes_on.wait()
        return super().get(key)


def test_a_store_that_hangs_holds_the_training_up_no_longer_than_said(
    make_party: MakeParty,
) -> None:
    store = HangingStore()
    party = make_party(replace(LONG, gather_s=BRIEF_S, store_s=BRIEF_S), store)
    party.start([0, 1, 2])
    party.ranks[3].agreement.start(0)
    party.order("c1")

    try:
        seen = party.wait_for_ends(1, [0, 1, 2])
        assert refusals_of(seen) == {"the store of the ranks does not answer: in doubt"}
        before = party.ranks[1].next_step
        until(lambda: party.ranks[1].next_step > before + 10)
    finally:
        store.goes_on.set()
