"""A service that keeps what trainers send, run by run, and knows when an order has arrived."""

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import msgspec
from benchmarks.frozen.records import Record, record_of
from tests.hooks.uplink.stub_service import StubService

from runwatch.commands import Command
from runwatch.frames import Frame
from runwatch.messages import AttemptClose, AttemptOpened, CommandsReply
from runwatch.rules import Rule
from runwatch.vocabulary import CommandId


class Recorder(StubService):
    """The stub of the tests, with each run's frames and closings apart."""

    def __init__(self) -> None:
        super().__init__()
        self._polls = threading.Condition()
        self._num_polls = 0
        self._delivered: dict[CommandId, int] = {}
        """For each command, how many polls had begun when one returned with it."""
        self._run_of: dict[int, str] = {}
        """The run of each attempt."""
        self._closings: dict[str, list[AttemptClose]] = defaultdict(list)

    def order(self, command: Command) -> None:
        """Give a trainer of one rank a command, and wait until the trainer has it.

        A trainer asks again once it has taken in what the last reply held.
        """
        self.send(command)
        with self._polls:
            arrived = self._polls.wait_for(lambda: self._has_arrived(command.id), 60.0)
        assert arrived, "no trainer asks for commands"

    def _has_arrived(self, command: CommandId) -> bool:
        return self._num_polls > self._delivered.get(command, self._num_polls)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> object:
        is_poll = path.endswith("/commands/next")
        if is_poll:
            with self._polls:
                self._num_polls += 1
                self._polls.notify_all()
        reply = super().answer(method, path, query, body)
        run_id = path.split("/")[4] if path.count("/") > 3 else ""
        match reply:
            case CommandsReply() if is_poll:
                with self._polls:
                    for command in reply.commands:
                        self._delivered.setdefault(command.id, self._num_polls)
            case AttemptOpened():
                self._run_of[reply.attempt] = run_id
            case _ if path.endswith("/close"):
                self._closings[run_id].append(msgspec.json.decode(body, type=AttemptClose))
            case _:
                pass
        return reply

    def records(self, rules: Sequence[Rule], *, layers_every: int = 1) -> dict[str, Record]:
        """By the runs' names; where several bear one, they are numbered."""
        seen: Counter[str] = Counter()
        records: dict[str, Record] = {}
        for run_id, run in self.runs.items():
            seen[run.name] += 1
            name = run.name if seen[run.name] == 1 else f"{run.name}-{seen[run.name]}"
            records[name] = record_of(
                self._frames_of(run_id),
                self.layouts,
                rules,
                [one for one in self.receipts if self._run_of[one.attempt] == run_id],
                sorted(self._closings[run_id], key=lambda one: one.rank),
                layers_every=layers_every,
            )
        return records

    def _frames_of(self, run_id: str) -> list[Frame]:
        """With attempts numbered anew from 1: the stub counts those of all runs."""
        attempts = sorted(a for a, run in self._run_of.items() if run == run_id)
        numbers = {attempt: number for number, attempt in enumerate(attempts, 1)}
        frames = [one for one in self.frames.values() if one.attempt in numbers]
        return [replace(one, attempt=numbers[one.attempt]) for one in frames]
