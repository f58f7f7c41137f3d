"""One rank of a job as a process of its own: gloo, a training loop, and orders to its leader."""

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Literal, cast

import torch
import torch.distributed as dist
from tests.waiting import LONGEST_S
from torch._C._distributed_c10d import PrefixStore, TCPStore

from runwatch.commands import Command, LowerLr
from runwatch.vocabulary import CommandId
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.agreement import Agreement
from runwatch_hooks.ranks.ballots import Proposal, Standing
from runwatch_hooks.ranks.coordinator import Patience

Death = Literal["never", "with its promise", "on its way to the agreed step"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """How one rank trains."""

    rank: int = 0
    port: int = 0
    attempt: str = "1"
    step_s: float = 0.002
    lockstep: bool = False
    """Whether an all_reduce holds the ranks together at each step, as gradients do."""
    orders: dict[int, str] = field(default_factory=dict[int, str])
    """Of the leader: at which step which command comes from the service."""
    expires_in_s: float = 1e6
    patience: Patience = field(default_factory=Patience)
    promises_after_s: float = 0.0
    promises_after: tuple[int, ...] = ()
    """Ranks whose promises, in the first round, come before its own."""
    dies: Death = "never"
    stands_at: int | None = None
    """A step in which it stays, until it is told to go on."""


@dataclass(frozen=True)
class Saw:
    """A command that ended at a rank."""

    next_step: int
    command: str
    is_go: bool
    refusal: str
    state: str


class Member:
    """The process itself."""

    def __init__(self, job: Job, line: Connection) -> None:
        self._job = job
        self._line = line
        self._speaking = threading.Lock()
        self._next_step = 0
        self._orders = dict(job.orders)
        self._goes_on = threading.Event()
        self._ends = threading.Event()
        store = TCPStore("127.0.0.1", job.port, is_master=False)
        life = PrefixStore(job.attempt, store)
        dist.init_process_group("gloo", store=life, rank=job.rank, world_size=4)
        ours = self._store = RankStore(life).under("runwatch")
        self._agreement = Agreement(
            ours.clone,
            rank=job.rank,
            world_size=4,
            take=self._take if job.rank == 0 else None,
            objection=self._objection,
            patience=job.patience,
        )

    def run(self) -> None:
        """Train until the test says `end`; tells each command's end, and every hundredth step."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._agreement.start(0)
        self._say("ready")
        gradient = torch.ones(8)
        while not self._ends.is_set():
            self._train(gradient)
            self._next_step += 1
            self._maybe_die()
            for ended in self._agreement.reach(self._next_step, lambda _, __: Standing()):
                verdict = ended.verdict
                self._say(
                    Saw(
                        self._next_step,
                        ended.command.id,
                        verdict.is_go,
                        verdict.refusal,
                        verdict.state.value,
                    )
                )
        self._agreement.close()
        self._say(self._next_step)

    def _say(self, word: object) -> None:
        with self._speaking:
            self._line.send(word)

    def _train(self, gradient: torch.Tensor) -> None:
        time.sleep(self._job.step_s)
        if self._job.lockstep:
            dist.all_reduce(gradient)
        if self._next_step == self._job.stands_at:
            self._say("stands")
            self._goes_on.wait(LONGEST_S)

    def _maybe_die(self) -> None:
        if self._job.dies == "on its way to the agreed step" and self._agreement.agreed_turn:
            os.kill(os.getpid(), signal.SIGKILL)

    def _objection(self, command: Command) -> str:
        if self._job.dies == "with its promise":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self._job.promises_after_s)
        for rank in self._job.promises_after:
            self._store.wait(f"1/promise/{rank}", LONGEST_S)
        return ""

    def _take(self) -> list[Proposal]:
        due = [step for step in list(self._orders) if self._next_step >= step]
        valid_for_s = self._job.expires_in_s
        names = [self._orders.pop(step) for step in due]
        return [
            Proposal(Command(CommandId(name), LowerLr(scale=0.5), 1, 1e12), valid_for_s)
            for name in names
        ]

    def _listen(self) -> None:
        while (word := cast(str, self._line.recv())) != "end":
            if word == "go on":
                self._goes_on.set()
            elif word == "order":
                self._orders[self._next_step] = "c1"
            elif word == "tell":
                self._say(self._next_step)
            elif word == "is there":
                self._say(self._agreement.agreed_turn == self._next_step)
        self._goes_on.set()
        self._ends.set()


def be(job: Job, line: Connection) -> None:
    """The process's main function."""
    torch.set_num_threads(1)
    Member(job, line).run()


def host(line: Connection) -> None:
    """The main function of a process that keeps the store, as torchrun's agent does."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    line.send(store.port)
    line.recv()
