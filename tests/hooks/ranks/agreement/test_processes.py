"""Four processes with gloo: all do what is commanded at one step, or none, whoever dies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from tests.hooks.processes import Process
from tests.hooks.ranks.agreement.member import Death, Job, Saw, be, host
from tests.hooks.ranks.agreement.party import BRIEF_S, LONG
from tests.waiting import until

from runwatch_hooks.ranks.coordinator import Patience

pytestmark = pytest.mark.heavy

FAR_AHEAD = 300
"""Steps: the slower rank would have to train for six seconds while the other stands still."""


class Rank(Process):
    """One that trains."""

    def __init__(self, job: Job) -> None:
        super().__init__(be, job)
        self.saw: list[Saw] = []

    def recv(self) -> object:
        """The next word that is not about a command."""
        while isinstance(word := super().recv(), Saw):
            self.saw.append(word)
        return word

    def see(self, count: int = 1) -> list[Saw]:
        """Until so many commands have ended here."""
        while len(self.saw) < count:
            word = super().recv()
            assert isinstance(word, Saw), word
            self.saw.append(word)
        return self.saw

    def next_step(self) -> int:
        self.line.send("tell")
        return cast(int, self.recv())

    def is_at_the_agreed_step(self) -> bool:
        self.line.send("is there")
        return cast(bool, self.recv())


class Ranks:
    """Four ranks, and the process that keeps their store."""

    def __init__(self) -> None:
        self.store = Process(host)
        self._port = cast(int, self.store.recv())
        self.members: list[Rank] = []

    def start(self, job: Job, *others: Job) -> list[Rank]:
        """`job` is the first rank's, and the others' but for those that are given."""
        jobs = {rank: replace(job, rank=rank, dies="never") for rank in range(1, 4)}
        jobs |= {0: job} | {one.rank: one for one in others}
        started = [Rank(replace(jobs[rank], port=self._port)) for rank in range(4)]
        self.members += started
        for member in started:
            assert member.recv() == "ready"
        return started

    def close(self) -> None:
        for process in (*self.members, self.store):
            process.end()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks()
    yield made
    made.close()


def goes_on(member: Rank) -> bool:
    """Whether it trains."""
    before = member.next_step()
    return until(lambda: member.next_step() >= before + 3)


def test_in_lockstep_two_commands_are_done_by_all_at_their_steps(ranks: Ranks) -> None:
    orders = {20: "c1", 21: "c2"}
    members = ranks.start(Job(lockstep=True, orders=orders, patience=LONG))

    saw = [member.see(2) for member in members]

    assert saw[0] == saw[1] == saw[2] == saw[3]
    assert [(one.command, one.is_go) for one in saw[0]] == [("c1", True), ("c2", True)]
    assert 20 < saw[0][0].next_step < saw[0][1].next_step


def test_ranks_that_are_steps_apart_meet_at_one(ranks: Ranks) -> None:
    apart = [Job(rank=rank, step_s=0.002 * (rank + 1), patience=LONG) for rank in (1, 2, 3)]
    members = ranks.start(Job(orders={150: "c1"}, patience=LONG), *apart)

    saw = [member.see() for member in members]

    assert saw[0] == saw[1] == saw[2] == saw[3]
    assert saw[0][0].is_go


def test_a_rank_that_is_there_before_the_decision_neither_acts_nor_runs_on(ranks: Ranks) -> None:
    """Rank 2 takes three seconds to promise: ten times what the others have promised for."""
    late = Job(rank=2, step_s=0.01, promises_after_s=3.0, patience=LONG)
    members = ranks.start(Job(orders={200: "c1"}, step_s=0.01, patience=LONG), late)

    saw = [member.see() for member in members]

    assert saw[0] == saw[1] == saw[2] == saw[3]
    assert saw[0][0].is_go


@pytest.mark.parametrize(
    ("dies", "patience"),
    [
        ("with its promise", replace(LONG, decide_s=BRIEF_S)),
        ("on its way to the agreed step", replace(LONG, gather_s=BRIEF_S)),
    ],
)
def test_when_the_leader_dies_the_others_call_it_off_and_go_on(
    ranks: Ranks, dies: Death, patience: Patience
) -> None:
    """The agreed step is that of a rank far ahead, else the leader might stand there already."""
    members = ranks.start(
        Job(dies=dies, step_s=0.02, patience=LONG),
        *[Job(rank=rank, patience=patience) for rank in (1, 2, 3)],
    )
    until(lambda: members[1].next_step() > members[0].next_step() + FAR_AHEAD)
    members[0].line.send("order")
    members[0].wait_for_death()

    saw = [member.see() for member in members[1:]]

    assert {one[0].is_go for one in saw} == {False}
    assert len({one[0].refusal for one in saw}) == 1
    assert all(goes_on(member) for member in members[1:])


def test_a_dead_follower_calls_it_off(ranks: Ranks) -> None:
    """The leader says it, whose patience begins once the living have promised."""
    others = [Job(rank=rank, patience=LONG) for rank in (1, 2, 3)]
    patience = replace(LONG, promise_s=BRIEF_S)
    members = ranks.start(Job(patience=patience, promises_after=(1, 3)), *others)
    members[2].kill()
    members[0].line.send("order")

    saw = [members[rank].see() for rank in (0, 1, 3)]

    assert {one[0].refusal for one in saw} == {"rank 2 does not answer"}
    assert goes_on(members[3])


def test_when_the_store_goes_away_at_the_agreed_step_nobody_acts(ranks: Ranks) -> None:
    """Rank 3 stands in a step before it, so the others stand there without a verdict."""
    held = Job(rank=3, stands_at=100, patience=LONG)
    members = ranks.start(Job(orders={300: "c1"}, patience=LONG), held)
    assert members[3].recv() == "stands"
    until(lambda: all(member.is_at_the_agreed_step() for member in members[:3]))

    ranks.store.kill()
    saw = [members[rank].see() for rank in (0, 1, 2)]

    assert {one[0].refusal for one in saw} == {"the store of the ranks is gone"}
    members[3].line.send("go on")
    assert not any(one.is_go for one in members[3].see())
    assert all(goes_on(member) for member in members)


def test_without_a_store_the_leader_declines(ranks: Ranks) -> None:
    members = ranks.start(Job(orders={20: "c0"}, patience=LONG))
    for member in members:
        member.see()
    ranks.store.kill()
    members[0].line.send("order")

    saw = members[0].see(2)[1:]

    assert [(one.is_go, one.refusal) for one in saw] == [(False, "the store of the ranks is gone")]
    assert goes_on(members[0])


def test_what_expires_on_its_way_is_done_by_none(ranks: Ranks) -> None:
    members = ranks.start(Job(lockstep=True, orders={20: "c1"}, expires_in_s=0.0, patience=LONG))

    saw = [member.see() for member in members]

    assert saw[0] == saw[1] == saw[2] == saw[3]
    assert (saw[0][0].is_go, saw[0][0].state) == (False, "expired")


def test_a_restarted_job_knows_nothing_of_what_the_first_left_undecided(ranks: Ranks) -> None:
    first = ranks.start(
        Job(orders={20: "c1"}, dies="with its promise", patience=LONG),
        *[Job(rank=rank, patience=LONG) for rank in (1, 2, 3)],
    )
    first[0].wait_for_death()
    for member in first[1:]:
        member.kill()

    second = ranks.start(Job(orders={20: "c2"}, attempt="2", lockstep=True, patience=LONG))
    saw = [member.see() for member in second]

    assert saw[0] == saw[1] == saw[2] == saw[3]
    assert [(one.command, one.is_go) for one in saw[0]] == [("c2", True)]
