"""`examples/plain_loop.py` as a job of its own, with the losses that it wrote."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.end_to_end.real_service import RealService
from tests.forking import TRAINER, fork
from tests.waiting import LONGEST_S, until

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId

ENDLESS: Final = 1_000_000
"""Steps of a training that is to be told something: one with an end may come to it before."""

_PROGRAM: Final = Path(__file__).parents[2] / "examples" / "plain_loop.py"


class Trainer:
    """One run of the program, started at once; as a context it is over afterwards."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        environment: Mapping[str, str],
        steps: int = 200,
        program: Path = _PROGRAM,
    ) -> None:
        folder.mkdir()
        self._spool = folder / "spool"
        self._environment = {**os.environ, "RUNWATCH_SPOOL": str(self._spool), **environment}
        self._losses = folder / "losses.jsonl"
        self.output = folder / "output.txt"
        arguments = ["--steps", str(steps), "--losses", str(self._losses), *options]
        self.process = fork(
            TRAINER,
            str(program),
            arguments,
            output=self.output,
            environment=self._environment,
            folder=folder,
        )

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def wait_for_steps(self, num_steps: int) -> None:
        """Until it has trained so many."""

        def are_trained() -> bool:
            is_over = self.process.poll() is not None  # then no more steps will come
            if len(self.trained()) >= num_steps:
                return True
            assert not is_over, self.output.read_text()
            return False

        until(are_trained, said=self.output.read_text)

    def finish(self) -> list[tuple[int, str]]:
        """The steps in the order in which they were trained, each with its loss to the bit. What
        did not arrive in the ten seconds that a run's end waits is brought in."""
        assert self.process.wait(LONGEST_S) == 0, self.output.read_text()
        bring_in(self._spool, self._environment)
        return self.trained()

    def trained(self) -> list[tuple[int, str]]:
        """What has been trained so far."""
        if not self._losses.exists():
            return []
        lines = [line for line in self._losses.read_text().splitlines(True) if line[-1] == "\n"]
        rows = [json.loads(line) for line in lines]
        return [(row["step"], row["loss"]) for row in rows]


def bring_in(spool: Path, environment: Mapping[str, str]) -> None:
    """What lies in a spool whose runs have ended, if anything does, to the service that the
    environment names."""
    if any(spool.rglob("meta.json")):
        sync = [sys.executable, "-m", "runwatch_hooks.sync", str(spool)]
        subprocess.run(sync, env=environment, check=True)


def unwatched(folder: Path, *, num_steps: int) -> list[tuple[int, str]]:
    """The first steps and losses of an endless training with the hook switched off."""
    with Trainer(folder, environment={"RUNWATCH_DISABLED": "1"}, steps=ENDLESS) as job:
        job.wait_for_steps(num_steps)
        return job.trained()[:num_steps]


def watched_by(service: RealService, *, number: int, policy: str = "observe") -> dict[str, str]:
    """The environment of a job whose run the service knows already, under a policy."""
    run_id = RunId(ulid(number, bytes(10)))
    service.ask("POST", "/runs", {"run_id": run_id, "name": f"run {number}"})
    service.ask("PATCH", f"/runs/{run_id}", {"policy": policy})
    return {
        "RUNWATCH_URL": service.url,
        "RUNWATCH_TOKEN": service.create_key("ingest"),
        "RUNWATCH_RUN_ID": run_id,
    }
