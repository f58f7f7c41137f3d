"""A trainer behind a balancer: each request goes to the next replica, and on where one fails."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import urllib3
from tests.faults.history import Applied, History
from tests.faults.recording import RecordingSender
from tests.faults.sender import Sender
from tests.waiting import until


class ReplicaSender:
    """One run of one rank."""

    def __init__(
        self, urls: Sequence[str], key: str, run_id: str, history: History | None = None
    ) -> None:
        self.run_id = run_id
        self._history = history
        self.applied: list[str] = []
        """Ids of commands, as they were carried out."""
        pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(5.0))
        self._turns = itertools.cycle(
            [RecordingSender(url, key, run_id, pool, history=history) for url in urls]
        )

    def send_until_acknowledged(self, seq: int, losses: Sequence[float], first_step: int) -> None:
        reply = self._until_done(lambda sender: sender.send(seq, losses, first_step=first_step))
        assert reply["acked"] == seq

    def obey(self) -> None:
        """Ask for commands and carry out what is new; what is told again is answered again."""
        path = f"/runs/{self.run_id}/commands/next?attempt=1&rank=0&wait_s=1"
        told = self._until_done(lambda sender: sender.json("GET", path))
        for command in told["commands"]:
            if command["id"] not in self.applied:
                self.applied.append(command["id"])
                if self._history is not None:
                    self._history.note(Applied(command["id"], 0))
            self._answer(command["id"])

    def _answer(self, command_id: str) -> None:
        facts = {"attempt": 1, "rank": 0, "state": "applied", "step": 1}
        receipt = {"command_id": command_id, **facts}
        path = f"/commands/{command_id}/receipt"
        self._until_done(lambda sender: sender.json("POST", path, receipt))

    def _until_done(self, ask: Callable[[Sender], Any]) -> Any:
        def answers() -> list[Any]:
            try:
                return [ask(next(self._turns))]
            except urllib3.exceptions.HTTPError:
                return []

        (answer,) = until(answers)
        return answer
