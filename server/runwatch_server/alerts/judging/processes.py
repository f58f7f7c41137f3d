"""Judging in processes beside the service, which leaves its interpreter free to answer requests.

Threads of one interpreter take turns; processes use further cores, if there are any (figures in
docs/deploy.md). A run is always judged by the same process. If a process ends, its judges are lost
(JudgeLostError): they are rebuilt from the database in the process that replaces it. A process that
is stuck is killed, and then replaced in the same way.
"""

import asyncio
import logging
import subprocess
import sys
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from multiprocessing import Pipe
from time import monotonic
from typing import Any, Final

from runwatch.rules import Rows, Transition, with_hashes
from runwatch.vocabulary import RunId
from runwatch_server.alerts.judging.fair_queue import Payer
from runwatch_server.alerts.judging.judge import JudgeLostError, JudgingFailedError
from runwatch_server.alerts.judging.judging_thread import JudgingThread
from runwatch_server.alerts.judging.messages import (
    Failed,
    GetKnown,
    GetState,
    Observe,
    Observed,
    Open,
    Question,
    Release,
    Request,
    receive,
    send,
)
from runwatch_server.alerts.judging.stall_detection import LONGEST_S, LOOK_S, StallDetector
from runwatch_server.alerts.judging.stream_judge import are_late, rows_of
from runwatch_server.rules.pack import RuleSet
from runwatch_server.telemetry.committed_frames import CommittedFrame

log = logging.getLogger(__name__)

_WORKER: Final = "runwatch_server.alerts.judging.worker"
_END_S: Final = 5.0
_NO_RUN: Final = Payer("", RunId(""))
_ROWS_A_QUESTION: Final = 256
"""About ten seconds with the most expensive rules."""


class ProcessJudging:
    """One thread per process, which asks it one question at a time. Made on an event loop, which
    watches the processes until `close`."""

    def __init__(self, num_processes: int, *, longest_s: float = LONGEST_S) -> None:
        self._slots = [_ProcessSlot(StallDetector(longest_s)) for _ in range(num_processes)]
        self._checking = asyncio.create_task(self._check_all(), name="looks after judging")

    @property
    def busy_s(self) -> float:
        return max(slot.thread.busy_s for slot in self._slots)

    async def open(
        self,
        run_id: RunId,
        rank: int,
        rule_set: RuleSet,
        *,
        project: str = "",
        state: bytes = b"",
        known: Mapping[str, float] | None = None,
    ) -> "ProcessJudge":
        slot = self._slots[zlib.crc32(run_id.encode()) % len(self._slots)]
        return await slot.open(Payer(project, run_id), rank, rule_set, state, known)

    async def close(self) -> None:
        for slot in self._slots:
            await slot.close()
        self._checking.cancel()

    async def _check_all(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for slot in self._slots:
                slot.check()


class ProcessJudge:
    """A judge in another process, addressed by its number there."""

    def __init__(
        self,
        slot: "_ProcessSlot",
        process: "_Process",
        number: int,
        payer: Payer,
        rank: int,
        rule_set: RuleSet,
        num_bytes: int,
    ) -> None:
        self.rule_set = rule_set
        self.num_bytes = num_bytes
        self._payer = payer
        self._slot = slot
        self._process = process
        self._number = number
        self._rank = rank
        weakref.finalize(self, process.released.append, number)

    async def observe(self, frames: Sequence[CommittedFrame]) -> list[Transition]:
        question = partial(self._observe, _parts_of(frames))
        can_wait = are_late(frames)
        transitions: list[Transition] = []
        turn = partial(self._slot.thread.do, self._payer, question, can_wait=can_wait)
        while (found := await turn()) is not None:
            transitions += found
        return transitions

    def _observe(self, parts: Iterator[Rows]) -> list[Transition] | None:
        """The transitions that the next rows bring; None if there are no more rows."""
        rows = next(parts, None)
        if rows is None:
            return None
        found: Observed = self._process.ask(Observe(self._number, rows))
        self.num_bytes = found.num_bytes
        return found.transitions

    async def known_to_next(self) -> dict[str, float]:
        known: dict[str, float] = await self._ask(GetKnown(self._number))
        return known

    async def state(self) -> bytes:
        state: bytes = await self._ask(GetState(self._number))
        return state

    async def with_rules(self, rule_set: RuleSet) -> "ProcessJudge":
        state = with_hashes(await self.state(), rule_set.hashes_since(self.rule_set))
        return await self._slot.open(self._payer, self._rank, rule_set, state, None)

    async def _ask(self, question: Question) -> Any:
        return await self._slot.thread.do(self._payer, lambda: self._process.ask(question))


def _parts_of(frames: Sequence[CommittedFrame]) -> Iterator[Rows]:
    """The rows of frames in parts of limited size. Raises FrameError."""
    for rows in rows_of(frames):
        if rows.unplaced:
            yield rows
        for start in range(0, rows.num_rows, _ROWS_A_QUESTION):
            yield rows.between(start, start + _ROWS_A_QUESTION)


class _ProcessSlot:
    """Holds a judging process and replaces it when it ends; only its thread talks to the
    process."""

    def __init__(self, stall_detector: StallDetector) -> None:
        self.thread = JudgingThread("judging")
        self._stall_detector = stall_detector
        self._process: _Process | None = None

    def check(self) -> None:
        """Kill the process if it is stuck; whoever waits for its answer gets JudgeLostError. Let
        judges go that nobody needs any more, as there may be no further question for long."""
        process = self._process
        if process is None:
            return
        if self._stall_detector.is_stalled(self.thread.since, monotonic()):
            process.kill_stalled(self._stall_detector.longest_s)
            self._stall_detector.restart()
        elif process.released and self.thread.since is None:
            self.thread.put(_NO_RUN, partial(process.ask, Release()))

    async def open(
        self,
        payer: Payer,
        rank: int,
        rule_set: RuleSet,
        state: bytes,
        known: Mapping[str, float] | None,
    ) -> ProcessJudge:
        process, number, num_bytes = await self.thread.do(
            payer, lambda: self._open(rank, rule_set, state, known)
        )
        return ProcessJudge(self, process, number, payer, rank, rule_set, num_bytes)

    def _open(
        self, rank: int, rule_set: RuleSet, state: bytes, known: Mapping[str, float] | None
    ) -> "tuple[_Process, int, int]":
        if self._process is None or self._process.is_over:
            self._process = _Process()
        return self._process, *self._process.open(rank, rule_set, state, known)

    async def close(self) -> None:
        """Nobody waits for an answer any more, so a process that still works on one is killed."""
        process = self._process
        if process is not None:
            if self.thread.since is not None:
                process.kill()
            await self.thread.do(_NO_RUN, process.end)
        self.thread.shutdown()


class _Process:
    """One judging process, from start to end."""

    def __init__(self) -> None:
        self.released: list[int] = []
        """Numbers of judges that are no longer referenced, added from whichever thread dropped the
        last reference."""
        self.is_over = False
        self._stalled_s: float | None = None
        self._numbers = count()
        self._known_rule_sets: set[str] = set()
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                # -P: files in the working directory must not be imported as modules.
                [sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def open(
        self, rank: int, rule_set: RuleSet, state: bytes, known: Mapping[str, float] | None
    ) -> tuple[int, int]:
        """Make a judge; returns its number, and how much memory it takes."""
        number, name = next(self._numbers), rule_set.hash
        documents = None if name in self._known_rule_sets else rule_set.documents
        num_bytes: int = self.ask(Open(number, rank, name, documents, state, known))
        self._known_rule_sets.add(name)
        return number, num_bytes

    def ask(self, question: Question) -> Any:
        """Raises JudgeLostError or JudgingFailedError."""
        if self.is_over:
            raise JudgeLostError("the process that judged has ended")
        released = tuple(self.released)
        del self.released[: len(released)]  # others may have been added meanwhile
        try:
            send(self._pipe, Request(question, released))
            answer = receive(self._pipe)
        except (EOFError, OSError) as error:
            self.end()
            raise JudgeLostError(self._why_lost) from error
        if isinstance(answer, Failed):
            raise JudgingFailedError(answer.text)
        return answer

    @property
    def _why_lost(self) -> str:
        if self._stalled_s is not None:
            return f"the process that judged stood still for {self._stalled_s:g} s"
        return f"the process that judged has ended with {self._process.returncode}"

    def kill_stalled(self, stalled_s: float) -> None:
        """Kill the process, from any thread, with a signal that no process can ignore, even a
        stopped one."""
        log.warning(
            "the process %d that judges has stood still for %g s: it is killed, and another begins",
            self._process.pid,
            stalled_s,
        )
        self._stalled_s = stalled_s
        self.kill()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.is_over = True
        self._pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
