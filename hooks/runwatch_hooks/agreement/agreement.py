"""One rank's part in doing what is commanded: at the step at which all do it, or not at all."""

from collections.abc import Callable, Sequence

from runwatch.commands import Command
from runwatch_hooks.agreement.ballots import Proposal, off
from runwatch_hooks.agreement.delegate import Delegate
from runwatch_hooks.agreement.gate import Ended, Gate, Prepare
from runwatch_hooks.agreement.patience import Patience
from runwatch_hooks.ranks import RankStore


class Agreement:
    """Promise and commit over a store, with no collective, and none of it on the training thread.

    1. The leader, who hears from the service, writes a proposal down.
    2. Each rank promises not to pass some turn ahead of it before it knows the decision.
    3. The leader takes the furthest of these turns: nobody has passed it, and nobody will
       unknowingly, however far the ranks are apart.
    4. At that turn each rank stands still and says what it can do. The last to come judges for
       all, by what all have said; the first to lose patience calls it off for all.
    5. A rollback is judged twice or more often: first the last to come names the newest state
       that all hold. Each reads it and looks whether it fits, before anything is changed. Where
       all have it ready they go back to it; where one found it damaged, the next is tried.

    Each of the two outcomes is the first write to one key, so all ranks read the same. A rank
    that cannot reach the store goes on training without the command; it is then missing at the
    agreed turn, and so the others go on without it too. What is left is a rank that loses the
    store in the milliseconds between its own standing and the verdict: it goes on without what
    the others do, says so in its receipt, and the command counts as failed.
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
        """`take`, of the leader alone, has the commands that came from the service since it was
        asked last. The store must be the attempt's own, or under a prefix of it: what an earlier
        attempt left there is not ours to finish. `take`, `objection` and `connect` are called by
        a thread of its own."""
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
        """Why nothing can be agreed on any more; None: all is well."""
        return self._delegate.loss

    @property
    def is_under_way(self) -> bool:
        """Whether this rank has promised, and does not know yet how it ends."""
        return self._gate.round is not None

    @property
    def agreed_turn(self) -> int | None:
        """Where all will stand still for the command that is under way; None: not known."""
        under_way = self._gate.round
        return None if under_way is None else under_way.turn

    def start(self, next_step: int) -> None:
        """Begin to listen. Raises RuntimeError where there is no thread to be had."""
        self._gate.begin(next_step)
        self._delegate.start()

    def reach(self, next_step: int, prepare: Prepare) -> list[Ended]:
        """At each boundary, by the training thread: what is to be done at it, or declined.

        Waits only where this rank has promised to, and never longer than `Patience` says.
        `prepare` says what this rank can do, and is asked at the agreed boundary.
        """
        ended = self._gate.pass_turn(next_step, prepare)
        loss = self._delegate.loss
        if loss is not None and self._take is not None:
            unheard = [*self._delegate.take_unproposed(), *self._take()]
            ended += [Ended(proposal.command, off(loss)) for proposal in unheard]
        return ended

    def tell(self, number: int) -> None:
        """Of the leader: let the others know a number, in a moment."""
        self._delegate.to_tell = number

    @property
    def told(self) -> int | None:
        """The number that the leader let know last."""
        return self._delegate.told

    def close(self) -> None:
        """Call off, for all ranks, what this one has promised and will not come to do."""
        self._delegate.stop()
