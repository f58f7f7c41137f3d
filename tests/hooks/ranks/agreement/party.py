"""Ranks that train side by side, each in a thread, and agree through one store of torch's."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from tests.waiting import LONGEST_S, until
from torch._C._distributed_c10d import HashStore

from runwatch.commands import AnyAction, Command, LowerLr
from runwatch.vocabulary import CommandId
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.agreement import Agreement
from runwatch_hooks.ranks.ballots import Ledger, Proposal, Standing
from runwatch_hooks.ranks.coordinator import Ended, Patience

LONG = Patience(
    promise_s=LONGEST_S,
    decide_s=LONGEST_S,
    gather_s=LONGEST_S,
    ready_s=LONGEST_S,
    store_s=LONGEST_S,
)
"""No patience ends before a test does, but for the one that it is about."""
BRIEF_S = 0.5
"""For that one: it may end at any time once it has begun."""


@dataclass
class Seen:
    """A command that ended at a rank, and where."""

    next_step: int
    ended: Ended


@dataclass
class Rank:
    """One of a party."""

    number: int
    agreement: Agreement
    step_s: float = 0.001
    next_step: int = 0
    seen: list[Seen] = field(default_factory=list[Seen])
    standing: Standing = field(default_factory=Standing)
    damaged: frozenset[int] = frozenset()
    """States that it finds it cannot go back to, once it reads them."""
    tried: list[int] = field(default_factory=list[int])
    reads: threading.Event = field(default_factory=threading.Event)
    """Cleared, it takes for ever to read a state."""

    def __post_init__(self) -> None:
        self.reads.set()

    def prepare(self, _: Command, to_step: int | None) -> Standing:
        if to_step is None:
            return self.standing
        self.tried.append(to_step)
        self.reads.wait()
        lost = self.damaged.intersection(self.tried)
        return replace(
            self.standing,
            states=tuple(
                tuple(step for step in kind if step not in lost) for kind in self.standing.states
            ),
            ready=None if to_step in lost else to_step,
        )

    def train(self, holds: Callable[[], bool]) -> None:
        while holds():
            threading.Event().wait(self.step_s)
            self.next_step += 1
            for ended in self.agreement.reach(self.next_step, self.prepare):
                self.seen.append(Seen(self.next_step, ended))


class Party:
    """Four ranks; what is appended to `commands` comes to the first of them from the service."""

    def __init__(self, patience: Patience = LONG, store: RankStore | None = None) -> None:
        shared = self.store = store or RankStore(HashStore())
        self.commands: list[Proposal] = []
        self.ranks = [
            Rank(
                number,
                Agreement(
                    lambda: shared,
                    rank=number,
                    world_size=4,
                    take=self._take if number == 0 else None,
                    patience=patience,
                ),
            )
            for number in range(4)
        ]
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(target=rank.train, args=(lambda: not self._ends.is_set(),))
            for rank in self.ranks
        ]

    def propose_without_a_leader(self, name: str) -> None:
        """As one that died at once after it had written its proposal."""
        command = Command(CommandId(name), LowerLr(scale=0.5), 1, 1e12)
        Ledger(self.store, 4).put("1/proposal", Proposal(command, 1e12))

    def wait_for_promises(self, ranks: Sequence[int]) -> None:
        """Until these ranks have promised, in the first round, what the leader will read."""
        for number in ranks:
            self.store.wait(f"1/promise/{number}", LONGEST_S)

    def order(
        self, name: str, action: AnyAction | None = None, *, expires_at: float = 1e12
    ) -> None:
        command = Command(CommandId(name), action or LowerLr(scale=0.5), 1, expires_at)
        self.commands.append(Proposal(command, expires_at - time.time()))

    def start(self, ranks: Sequence[int] = (0, 1, 2, 3)) -> None:
        for number in ranks:
            self.ranks[number].agreement.start(0)
            self._threads[number].start()

    def wait_for_ends(self, count: int, ranks: Sequence[int] = (0, 1, 2, 3)) -> list[list[Seen]]:
        """Until each of the ranks has seen so many commands end."""
        until(lambda: all(len(self.ranks[number].seen) >= count for number in ranks))
        return [self.ranks[number].seen for number in ranks]

    def close(self) -> None:
        self._ends.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(LONGEST_S)
        for rank in self.ranks:
            rank.agreement.close()

    def _take(self) -> list[Proposal]:
        taken, self.commands[:] = list(self.commands), []
        return taken
