"""One rank's part in carrying out commands at the same step on all ranks, or on none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from runwatch.commands import Command
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.ballots import Proposal, off
from runwatch_hooks.ranks.coordinator import Delegate, Ended, Gate, Patience, Prepare


class Agreement:
    """A promise and commit protocol over a store, without collectives, and not on the training
    thread.

    1. The leader, which receives commands from the service, writes a proposal.
    2. Each rank promises not to pass a certain later turn before it knows the decision.
    3. The leader decides on the last of these turns: no rank has passed it, and none will pass it
       without knowing the decision, however far apart the ranks are.
    4. At that turn each rank waits and writes what it can do. The last to arrive judges for all
       ranks; the first to time out cancels the command for all.
    5. A rollback is judged twice or more: first the last rank to arrive names the newest state that
       all hold. Each rank reads and checks it before anything is changed. If all have it ready,
       they go back to it; if one finds it damaged, the next state is tried.

    Decision and verdict are each the first write to one key, so all ranks read the same. A rank
    that cannot reach the store continues training without the command; it is then missing at the
    agreed turn, so the others continue without it too. One case remains: a rank that loses the
    store in the milliseconds between writing its standing and reading the verdict. It continues
    without what the others do, its receipt says so, and the command counts as failed.
    """

    def __init__(
        self,
        connect: Callable[[], RankStore],
        *,
        rank: int,
        world_size: int,
        take: Callable[[], Sequence[Proposal]] | None = None,
        objection: Callable[[Command], str] = lambda command: "",
        patience: Patience | None = None,
    ) -> None:
        """`take`, on the leader only, returns the commands received from the service since the last
        call. The store must be the attempt's own, or have a prefix of its own, so that nothing of
        an earlier attempt is in it. `take`, `objection` and `connect` are called in another
        thread."""
        patience = patience or Patience()
        self._take = take
        self._gate = Gate(patience)
        self._delegate = Delegate(
            connect,
            self._gate,
            patience,
            rank=rank,
            world_size=world_size,
            take=take,
            objection=objection,
        )

    @property
    def loss(self) -> str | None:
        """Why the ranks cannot agree on commands any more; None while they can."""
        return self._delegate.loss

    @property
    def is_under_way(self) -> bool:
        """Whether this rank has made a promise and does not know the outcome yet."""
        return self._gate.round is not None

    @property
    def agreed_turn(self) -> int | None:
        """The turn at which all ranks will wait for the current command; None: not known."""
        under_way = self._gate.round
        return None if under_way is None else under_way.turn

    def start(self, next_step: int) -> None:
        """Start listening. Raises RuntimeError if no thread can be started."""
        self._gate.begin(next_step)
        self._delegate.start()

    def reach(self, next_step: int, prepare: Prepare) -> list[Ended]:
        """Called by the training thread at each boundary: the commands to carry out here, or to
        decline.

        Waits only at a turn that this rank has promised not to pass, and at most as long as
        `Patience` allows. `prepare` is called at the agreed turn, and returns what this rank can
        do.
        """
        ended = self._gate.pass_turn(next_step, prepare)
        loss = self._delegate.loss
        if loss is not None and self._take is not None:
            unheard = [*self._delegate.take_unproposed(), *self._take()]
            ended += [Ended(proposal.command, off(loss)) for proposal in unheard]
        return ended

    def tell(self, number: int) -> None:
        """On the leader: send a number to the other ranks, without waiting."""
        self._delegate.to_tell = number

    @property
    def told(self) -> int | None:
        """The number that the leader sent last."""
        return self._delegate.told

    def close(self) -> None:
        """Stop, and cancel for all ranks what this one has promised and will not carry out."""
        self._delegate.stop()


_Told = TypeVar("_Told", int, str)

PATIENCE_S: Final = 120.0
"""How long to wait for the slowest rank, which may still be building its model."""


class Meeting:
    """All ranks must call the same methods in the same order. Raises StoreError."""

    def __init__(
        self, store: RankStore, *, rank: int, world_size: int, patience_s: float = PATIENCE_S
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._patience_s = patience_s
        self._number = 0

    def common(self, steps: Iterable[int]) -> int | None:
        """The newest step that every rank has given; None if there is none."""
        ours, *others = self._gather(sorted(set(steps)))
        return max(set(ours).intersection(*others), default=None)

    def all_took_one(self, name: str | None) -> bool:
        """Whether all ranks give the same name, and none gives None."""
        names = self._gather([] if name is None else [name])
        return names[0] != [] and all(one == names[0] for one in names)

    def _gather(self, told: list[_Told]) -> list[list[_Told]]:
        self._number += 1
        self._store.put(f"{self._number}/{self._rank}", msgspec.json.encode(told))
        return [
            msgspec.json.decode(self._store.wait(f"{self._number}/{rank}", self._patience_s))
            for rank in range(self._world_size)
        ]
