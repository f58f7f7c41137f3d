"""Where the training thread meets what the ranks agree on: passed in a microsecond when nothing is.

A promise and the passing of a turn exclude each other by one lock, so a promise is never about a
turn that has been passed already.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runwatch.commands import Command
from runwatch_hooks.agreement.ballots import Promise, Proposal, Standing, Verdict, off
from runwatch_hooks.agreement.patience import Patience

MAX_TURNS_AHEAD: Final = 1000
_WEIGHT_OF_LAST: Final = 0.2
"""In the running mean of how long a turn takes."""


@dataclass(slots=True, eq=False)
class Round:
    """One command under way, as this rank sees it."""

    number: int
    proposal: Proposal
    last_turn: int
    """Not to be passed before the decision is known."""
    turn: int | None = None
    """Agreed; None: not decided yet."""
    standing: Standing | None = None
    """What this rank can do, once it stands at the agreed turn."""
    waits_since: float | None = None
    """Monotonic seconds: since when the training thread stands still."""
    verdict: Verdict | None = None

    @property
    def waited_s(self) -> float:
        return 0.0 if self.waits_since is None else time.monotonic() - self.waits_since


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that came to its end here: to be carried out now, or to be declined."""

    command: Command
    verdict: Verdict


class Gate:
    """Shared by the training thread, which passes, and the delegate, which talks to the store."""

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
        """Set when the training thread begins to wait: the delegate is to look at once."""

    @property
    def round(self) -> Round | None:
        return self._round

    # The training thread.

    def begin(self, next_step: int) -> None:
        with self._changed:
            self._first_step = next_step

    def pass_turn(self, next_step: int, prepare: Callable[[Command], Standing]) -> list[Ended]:
        """One boundary. Waits only where this rank has promised to; returns what has ended.

        `prepare` is asked, at the agreed turn, what this rank can do.
        """
        with self._changed:
            self._turn += 1
            self._first_step = next_step - self._turn
            self._note_time()
            if self._round is not None:
                self._hold(self._round, prepare)
                self._passed_at = time.monotonic()
            ended, self._ended = self._ended, []
        return ended

    def _hold(self, under_way: Round, prepare: Callable[[Command], Standing]) -> None:
        if self._turn >= under_way.last_turn:
            self._wait(under_way, lambda: under_way.turn is not None, self._patience.decide_s)
        if under_way.verdict is None and under_way.turn == self._turn:
            under_way.standing = prepare(under_way.proposal.command)
            self._wait(under_way, lambda: False, self._patience.gather_s)

    def _wait(self, under_way: Round, holds: Callable[[], bool], patience_s: float) -> None:
        """The delegate gives up in time, for all ranks; where even it hangs, so do we, alone."""
        if under_way.verdict is not None or holds():
            return
        under_way.waits_since = time.monotonic()
        self.stands.set()
        limit_s = patience_s + self._patience.store_s
        if not self._changed.wait_for(lambda: under_way.verdict is not None or holds(), limit_s):
            self._end(under_way, off("the store of the ranks does not answer: in doubt"))
        under_way.waits_since = None

    def _note_time(self) -> None:
        now = time.monotonic()
        if self._passed_at is not None:
            last = now - self._passed_at
            mean = last if self._turn_s is None else self._turn_s
            self._turn_s = mean + _WEIGHT_OF_LAST * (last - mean)
        self._passed_at = now

    # The delegate.

    def promise(
        self, number: int, proposal: Proposal, *, within_s: float, refusal: str = ""
    ) -> Promise:
        """Open a round, and promise to stop where it should have been decided long since."""
        with self._changed:
            turns = 1 if not self._turn_s else math.ceil(within_s / self._turn_s)
            last_turn = self._turn + min(max(turns, 1), MAX_TURNS_AHEAD)
            self._round = Round(number, proposal, last_turn)
            return Promise(last_turn, self._first_step, refusal)

    def decide(self, under_way: Round, turn: int) -> None:
        with self._changed:
            under_way.turn = turn
            self._changed.notify_all()

    def end(self, under_way: Round, verdict: Verdict) -> None:
        """Unless the training thread has given it up already."""
        with self._changed:
            self._end(under_way, verdict)

    def _end(self, under_way: Round, verdict: Verdict) -> None:
        if under_way.verdict is None:
            under_way.verdict = verdict
            if verdict.to_step is not None:  # a rank that is still restoring counts as the others
                self._first_step = verdict.to_step + 1 - self._turn
            self._ended.append(Ended(under_way.proposal.command, verdict))
            self._round = None
            self._changed.notify_all()
