"""Between the training thread and the other ranks: the thread that uses the store, and the gate."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from runwatch.commands import Command
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import RankStore, StoreError
from runwatch_hooks.ranks.ballots import (
    Decision,
    Ledger,
    Promise,
    Proposal,
    Standing,
    Trial,
    Verdict,
    decide,
    judge,
    off,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Timeouts in seconds. A training thread waits only while a command is under way."""

    promise_s: float = 5.0
    """The leader, for the promises of all ranks, which their delegate threads make."""
    decide_s: float = 10.0
    """A training thread at the turn that it promised not to pass, for the decision."""
    gather_s: float = 60.0
    """A training thread at the agreed turn, for the others to arrive. Ranks that train in lockstep
    arrive within a step; a rank that is compiling or saving needs longer."""
    ready_s: float = 300.0
    """A training thread that has a rollback's state ready, for the others to read theirs, possibly
    from disk."""
    store_s: float = 5.0
    """A training thread, for a delegate that does not time out by itself because the store hangs;
    after that the rank gives up alone."""
    close_s: float = 1.0
    """The end of a run, for the delegate thread."""

    def __post_init__(self) -> None:
        for name in ("promise_s", "decide_s", "gather_s", "ready_s", "store_s", "close_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: found {getattr(self, name)}, wanted more than 0")


MAX_TURNS_AHEAD: Final = 1000
_WEIGHT_OF_LAST: Final = 0.2
"""Weight of the last turn in the moving average of turn times."""

Prepare = Callable[[Command, int | None], Standing]
"""Called by the training thread at the agreed turn; returns what this rank can do. With a step, it
must first get the state for a rollback to that step ready."""


@dataclass(slots=True, eq=False)
class Round:
    """One command under way, on this rank.

    Making a promise and passing a turn are serialised by one lock, so a promise is never about a
    turn that was already passed.
    """

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


log = OwnLog(__name__)

_IDLE_S: Final = 0.1
_QUESTIONS_PER_S: Final = 2000
"""Limit on the requests of all ranks to one store while idle; a request takes it about 15 us."""
_BUSY_S: Final = 0.005
"""Pause between requests while a command is under way."""


class Delegate:
    """The delegate of one rank. Unlike the other threads, it keeps its normal priority: it hardly
    runs, and the training thread may wait for it."""

    def __init__(
        self,
        connect: Callable[[], RankStore],
        gate: Gate,
        patience: Patience,
        *,
        rank: int,
        world_size: int,
        take: Callable[[], Sequence[Proposal]] | None,
        objection: Callable[[Command], str],
    ) -> None:
        """`connect` opens a connection for this thread; `take` returns what the leader must
        propose; `objection` returns why this rank refuses a command, or an empty text."""
        self._connect = connect
        self._gate = gate
        self._patience = patience
        self._rank = rank
        self._world_size = world_size
        self._take = take
        self._objection = objection
        self._idle_s = max(_IDLE_S, world_size / _QUESTIONS_PER_S)
        self._number = 0
        self._to_propose: list[tuple[float, Proposal]] = []
        """(monotonic time at which it was taken, proposal)"""
        self._promises: list[Promise] = []
        self._promised_at = 0.0
        self._stages_stood = 0
        self._stopping = threading.Event()
        self.to_tell: int | None = None
        """On the leader: a number to send to the other ranks."""
        self.told: int | None = None
        """The number last sent or received."""
        self.loss: str | None = None
        """Why the ranks cannot agree on commands any more."""
        self._thread = threading.Thread(target=self._run, name="runwatch-agreement", daemon=True)

    def take_unproposed(self) -> list[Proposal]:
        """Commands that were taken and never proposed, once there is a `loss`."""
        taken, self._to_propose = self._to_propose, []
        return [proposal for _, proposal in taken]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cancel what is under way, and end the thread. If the store hangs, it is not waited
        for."""
        self._stopping.set()
        self._gate.stands.set()
        if self._thread.ident is not None:
            self._thread.join(self._patience.close_s)

    def _run(self) -> None:
        try:
            self._ledger = Ledger(self._connect(), self._world_size)
            while not self._stopping.is_set():
                self._gate.stands.wait(self._turn_to())
                self._gate.stands.clear()
            self._leave()
        except StoreError as error:
            if not self._stopping.is_set():  # at the end, rank 0 exits and its store with it
                log.warning("rank %d carries out no more commands: %s", self._rank, error)
            self._lose("the store of the ranks is gone")
        except Exception:  # the training thread may be waiting, and must be released
            log.exception("rank %d carries out no more commands", self._rank)
            self._lose(f"rank {self._rank} has failed internally")

    def _lose(self, loss: str) -> None:
        self.loss = loss
        under_way = self._gate.round
        if under_way is not None:
            self._gate.end(under_way, off(loss))

    def _turn_to(self) -> float:
        """Do what is due; returns seconds to wait until the next turn."""
        under_way = self._gate.round
        if under_way is None:
            return self._look_for_proposal()
        if under_way.turn is None:
            return self._see_to_decision(under_way)
        return self._see_to_verdict(under_way)

    def _look_for_proposal(self) -> float:
        number = self._number + 1
        self._propose(number)
        self._exchange_number()
        proposal = self._ledger.find(f"{number}/proposal", Proposal)
        if proposal is None:
            return self._idle_s
        del self._to_propose[:1]  # only now: a put into a dying store does not raise
        self._number = number
        self._promises, self._stages_stood = [], 0
        promise = self._gate.promise(
            number, proposal, within_s=3 * self._idle_s, refusal=self._objection(proposal.command)
        )
        self._promised_at = time.monotonic()
        self._ledger.put(f"{number}/promise/{self._rank}", promise)
        return 0.0

    def _exchange_number(self) -> None:
        if self._take is None:
            self.told = self._ledger.find("number", int)
        elif self.to_tell != self.told:
            self.told = self.to_tell
            self._ledger.put("number", self.told)

    def _propose(self, number: int) -> None:
        if self._take is None:
            return
        now = time.monotonic()
        self._to_propose.extend((now, proposal) for proposal in self._take())
        if self._to_propose:
            taken_at, proposal = self._to_propose[0]
            valid_for_s = proposal.valid_for_s - (now - taken_at)
            self._ledger.forget(number)
            self._ledger.put(f"{number}/proposal", replace(proposal, valid_for_s=valid_for_s))

    def _see_to_decision(self, under_way: Round) -> float:
        place = f"{under_way.number}/decision"
        decision = self._ledger.find(place, Decision)
        if decision is None:
            due = self._due_decision(under_way)
            if due is None:
                return _BUSY_S
            decision = self._ledger.settle(place, due)
        if decision.turn is None:
            self._gate.end(under_way, off(decision.refusal, decision.state))
        else:
            self._gate.decide(under_way, decision.turn)
        return 0.0

    def _due_decision(self, under_way: Round) -> Decision | None:
        """The decision that this rank has to write, unless another was first; None: not yet."""
        if under_way.is_overdue:
            return Decision(None, f"rank {self._rank} waited too long for the others' promises")
        if self._take is None:
            return None
        while len(self._promises) < self._world_size:
            rank = len(self._promises)
            promise = self._ledger.find(f"{under_way.number}/promise/{rank}", Promise)
            if promise is None:
                if time.monotonic() - self._promised_at > self._patience.promise_s:
                    return Decision(None, f"rank {rank} does not answer")
                return None
            self._promises.append(promise)
        return decide(self._promises)

    def _see_to_verdict(self, under_way: Round) -> float:
        place = f"{under_way.number}/verdict"
        verdict = self._ledger.find(place, Verdict)
        if verdict is None:
            if under_way.standing is None:  # training until the turn, or reading a state
                return self._idle_s
            due = self._due_verdict(under_way, under_way.standing)
            if due is None:
                return _BUSY_S
            if isinstance(due, Trial):
                self._gate.try_out(under_way, due)
                return 0.0
            verdict = self._ledger.settle(place, due)
        self._gate.end(under_way, verdict)
        return 0.0

    def _due_verdict(self, under_way: Round, standing: Standing) -> Verdict | Trial | None:
        """The next trial or verdict, written by another rank or to be written by this one; None:
        not yet."""
        number, stage = under_way.number, under_way.stage
        next_trial = f"{number}/trial/{stage + 1}"
        if self._stages_stood == stage:
            self._stages_stood += 1
            self._ledger.put(f"{number}/standing/{stage}/{self._rank}", standing)
            if self._ledger.count(f"{number}/num_standing/{stage}") == self._world_size:
                judged = self._judge(under_way)
                if isinstance(judged, Trial):
                    self._ledger.put(next_trial, judged)
                return judged
        trial = self._ledger.find(next_trial, Trial)
        if trial is None and under_way.is_overdue:
            return off(f"rank {self._rank} waited too long for the others at one step")
        return trial

    def _judge(self, under_way: Round) -> Verdict | Trial:
        place = f"{under_way.number}/standing/{under_way.stage}"
        standings = self._ledger.all_of(place, Standing)
        waited_s = time.monotonic() - self._promised_at
        return judge(under_way.proposal, standings, waited_s=waited_s)

    def _leave(self) -> None:
        under_way = self._gate.round
        if under_way is None:
            return
        ended = off(f"rank {self._rank} has ended its training")
        if under_way.turn is None:
            decision = Decision(None, ended.refusal)
            decided = self._ledger.settle(f"{under_way.number}/decision", decision)
            if decided.turn is None:
                return
        self._ledger.settle(f"{under_way.number}/verdict", ended)
