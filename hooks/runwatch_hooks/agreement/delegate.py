"""The thread that uses the store for its rank, so that the training thread never does."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from runwatch.commands import Command
from runwatch_hooks.agreement.ballots import (
    Decision,
    Promise,
    Proposal,
    Standing,
    Trial,
    Verdict,
    decide,
    judge,
    off,
)
from runwatch_hooks.agreement.gate import Gate, Round
from runwatch_hooks.agreement.ledger import Ledger
from runwatch_hooks.agreement.patience import Patience
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import RankStore, StoreError

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
