"""The gate that the training thread passes at each boundary; in a microsecond without a command.

Making a promise and passing a turn are serialised by one lock, so a promise is never about a turn
that was already passed.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runwatch.commands import Command
from runwatch_hooks.agreement.ballots import Promise, Proposal, Standing, Trial, Verdict, off
from runwatch_hooks.agreement.patience import Patience

MAX_TURNS_AHEAD: Final = 1000
_WEIGHT_OF_LAST: Final = 0.2
"""Weight of the last turn in the moving average of turn times."""

Prepare = Callable[[Command, int | None], Standing]
"""Called by the training thread at the agreed turn; returns what this rank can do. With a step, it
must first get the state for a rollback to that step ready."""


@dataclass(slots=True, eq=False)
class Round:
    """One command under way, on this rank."""

    number: int
    proposal: Proposal
    last_turn: int
    """The turn that must not be passed before the decision is known."""
    turn: int | None = None
    """The agreed turn; None: not decided yet."""
    stage: int = 0
    """The number of states tried so far, for a rollback."""
    trial: Trial | None = None
    """The state that the training thread must get ready before it stands again."""
    standing: Standing | None = None
    """What this rank can do, once it is at the agreed turn."""
    waits_since: float | None = None
    """Monotonic time since which the training thread has been waiting."""
    patience_s: float = math.inf
    """How long it may wait before this rank cancels the command for all."""
    verdict: Verdict | None = None

    @property
    def is_overdue(self) -> bool:
        """Whether the training thread has waited too long."""
        since = self.waits_since
        return since is not None and time.monotonic() - since > self.patience_s


@dataclass(frozen=True, slots=True)
class Ended:
    """A command with its verdict: to be carried out now, or declined."""

    command: Command
    verdict: Verdict


class Gate:
    """Shared by the training thread, which passes it, and the delegate, which uses the store."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._turn = 0
        self._first_step = 0
        self._passed_at: float | None = None
        self._turn_s: float | None = None
        self._round: Round | None = None
        self._ended: list[Ended] = []
        self.stands = threading.Event()
        """Set when the training thread starts to wait, to wake the delegate."""

    @property
    def round(self) -> Round | None:
        return self._round

    # For the training thread.

    def begin(self, next_step: int) -> None:
        with self._changed:
            self._first_step = next_step

    def pass_turn(self, next_step: int, prepare: Prepare) -> list[Ended]:
        """Pass one boundary; returns commands with a verdict. Waits only if this rank has promised
        to."""
        with self._changed:
            self._turn += 1
            self._first_step = next_step - self._turn
            self._note_time()
            under_way = self._round
        if under_way is not None:
            self._hold(under_way, prepare)
        with self._changed:
            if under_way is not None:
                self._passed_at = time.monotonic()
            ended, self._ended = self._ended, []
        return ended

    def _hold(self, under_way: Round, prepare: Prepare) -> None:
        """Wait for the command's outcome. The lock is held only while waiting: reading a state
        takes long, and meanwhile the delegate may have to cancel the command."""
        command = under_way.proposal.command
        if self._turn >= under_way.last_turn:
            self._wait(under_way, lambda: under_way.turn is not None, self._patience.decide_s)
        if under_way.verdict is not None or under_way.turn != self._turn:
            return
        self._stand(under_way, prepare(command, None), self._patience.gather_s)
        while under_way.verdict is None and under_way.trial is not None:
            ready = prepare(command, under_way.trial.to_step)
            self._stand(under_way, ready, self._patience.ready_s)

    def _stand(self, under_way: Round, standing: Standing, patience_s: float) -> None:
        with self._changed:
            under_way.trial = None
            under_way.standing = standing
        self._wait(under_way, lambda: under_way.trial is not None, patience_s)

    def _wait(self, under_way: Round, holds: Callable[[], bool], patience_s: float) -> None:
        """Wait until `holds` or a verdict. The delegate times out first, and cancels for all ranks.
        If even the delegate hangs, this rank gives up alone."""

        def is_over() -> bool:
            return under_way.verdict is not None or holds()

        with self._changed:
            if is_over():
                return
            under_way.patience_s = patience_s
            under_way.waits_since = time.monotonic()
            self.stands.set()
            if not self._changed.wait_for(is_over, patience_s + self._patience.store_s):
                self._end(under_way, off("the store of the ranks does not answer: in doubt"))
            under_way.waits_since = None

    def _note_time(self) -> None:
        now = time.monotonic()
        if self._passed_at is not None:
            last = now - self._passed_at
            mean = last if self._turn_s is None else self._turn_s
            self._turn_s = mean + _WEIGHT_OF_LAST * (last - mean)
        self._passed_at = now

    # For the delegate.

    def promise(
        self, number: int, proposal: Proposal, *, within_s: float, refusal: str = ""
    ) -> Promise:
        """Open a round, and promise to stop at a turn by which it should long be decided."""
        with self._changed:
            turns = 1 if not self._turn_s else math.ceil(within_s / self._turn_s)
            last_turn = self._turn + min(max(turns, 1), MAX_TURNS_AHEAD)
            self._round = Round(number, proposal, last_turn)
            return Promise(last_turn, self._first_step, refusal)

    def decide(self, under_way: Round, turn: int) -> None:
        with self._changed:
            under_way.turn = turn
            self._changed.notify_all()

    def try_out(self, under_way: Round, trial: Trial) -> None:
        """Let the training thread get a state ready."""
        with self._changed:
            under_way.stage += 1
            under_way.standing = None
            under_way.trial = trial
            self._changed.notify_all()

    def end(self, under_way: Round, verdict: Verdict) -> None:
        """End the round, unless the training thread has given up already."""
        with self._changed:
            self._end(under_way, verdict)

    def _end(self, under_way: Round, verdict: Verdict) -> None:
        if under_way.verdict is None:
            under_way.verdict = verdict
            if verdict.to_step is not None:  # now, so that a rank still restoring counts alike
                self._first_step = verdict.to_step + 1 - self._turn
            self._ended.append(Ended(under_way.proposal.command, verdict))
            self._round = None
            self._changed.notify_all()
