"""An example program as a job of its own, watched by a real service."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.end_to_end.real_service import RealService
from tests.forking import TRAINER, Forked, fork
from tests.waiting import LONGEST_S, until

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId

_EXAMPLES: Final = Path(__file__).parents[3] / "examples"

FRAMEWORKS: Final = {
    "hf_trainer": (*TRAINER, "transformers.trainer"),
    "lightning_module": (*TRAINER, "lightning.pytorch"),
    "accelerate_loop": (*TRAINER, "accelerate"),
}
"""What is imported before a program is forked."""


class Job:
    """One program over one output folder, however often it is started."""

    def __init__(self, program: str, folder: Path, service: RealService, *, number: int) -> None:
        folder.mkdir(exist_ok=True)
        self.program = program
        self.output = folder / "output"
        self.run_id = RunId(ulid(number, bytes(10)))
        self._service = service
        service.ask("POST", "/runs", {"run_id": self.run_id, "name": program})
        self._log = folder / "log.txt"
        self._process: Forked | None = None
        self._environment = {
            **os.environ,
            "RUNWATCH_URL": service.url,
            "RUNWATCH_TOKEN": service.create_key("ingest"),
            "RUNWATCH_SPOOL": str(folder / "spool"),
            "RUNWATCH_RUN_ID": self.run_id,
        }

    def start(self, *, steps: int) -> None:
        self._process = fork(
            FRAMEWORKS[self.program],
            str(_EXAMPLES / f"{self.program}.py"),
            [f"--steps={steps}", f"--output={self.output}"],
            output=self._log,
            environment=self._environment,
            folder=self._log.parent,
        )

    def wait(self) -> None:
        """Until it has ended in order."""
        assert self._process is not None
        assert self._process.wait(LONGEST_S) == 0, self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def series(self, **query: str) -> dict[int, Any]:
        """A metric, or a layer's stat, by step."""
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        found = self._service.ask("GET", f"/runs/{self.run_id}/series?points=10000&{asked}")
        return dict(zip(found["steps"], found["values"], strict=True))

    def ask(self, path: str = "") -> Any:
        return self._service.ask("GET", f"/runs/{self.run_id}{path}")

    def command(self, kind: str, **detail: object) -> Any:
        """Order something, and wait until the trainer says what came of it."""
        order = {"action": {"kind": kind, **detail}}
        ordered = self._service.ask("POST", f"/runs/{self.run_id}/commands", order)
        return self.until(lambda: self._ended(ordered["id"]))

    def until(self, ask: Callable[[], Any]) -> Any:
        """The first answer that says something, while the program does not fail."""

        def answer() -> Any:
            assert self._process is not None
            assert self._process.poll() in (None, 0), self._log.read_text()
            return ask()

        return until(answer, said=self._log.read_text)

    def _ended(self, command_id: str) -> Any:
        found = self.ask("/commands")["commands"]
        return next((c for c in found if c["id"] == command_id and c["ended_at"]), None)

    def num_steps(self) -> int:
        """Steps that have come in."""
        if "loss" not in self.ask("/metrics")["metrics"]:
            return 0
        return len(self.series(metric="loss"))
