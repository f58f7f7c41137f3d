"""The trainings of the demo as processes, and the lines that they print to standard output.

The program is `runwatch_hooks.demo`. It is started by name and never imported, because the service
does not know the hook.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from runwatch.nonfinite import JsonNumber, from_json
from runwatch_server.demo.errors import TrainingFailedError
from runwatch_server.demo.outcome import Mode
from runwatch_server.secret_files import make_folder


class Line(msgspec.Struct, frozen=True):
    """One line of a trainer."""

    step: int | None = None
    loss: JsonNumber = None
    rolled_back_to: int | None = None
    ended: bool = False
    losses: list[JsonNumber] = []

    @property
    def loss_value(self) -> float:
        return from_json(self.loss)


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """A line that a training printed; `line` is None when it has ended."""

    mode: Mode
    line: Line | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """What to train."""

    steps: int
    seed: int
    fault_step: int


_PROGRAM: Final = "runwatch_hooks.demo"


class Trainer:
    """One training in a process of its own, on one thread."""

    def __init__(
        self, mode: Mode, plan: TrainingPlan, folder: Path, reports: "queue.Queue[TrainerReport]"
    ) -> None:
        self.mode = mode
        self.losses: list[float] = []
        self._command = [sys.executable, "-P", "-m", _PROGRAM, "--mode", mode.value]
        self._command += ["--steps", str(plan.steps), "--seed", str(plan.seed)]
        self._command += ["--fault-step", str(plan.fault_step)]
        self._command += ["--checkpoints", str(folder / "checkpoints" / mode.value)]
        self._log_path = folder / "logs" / f"{mode.value}.log"
        self._reports = reports
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, variables: Mapping[str, str]) -> None:
        """Start it; `variables` say where the service is, and the run's id."""
        make_folder(self._log_path.parent)
        with self._log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            )
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def finish(self) -> None:
        """Wait for it after its last line. Raises TrainingFailedError, with the end of its log."""
        assert self._process is not None
        if self._process.wait() != 0 or not self.losses:
            raise TrainingFailedError(
                f"the {self.mode} training ended with code {self._process.returncode}:\n"
                + self._log_path.read_text(encoding="utf-8", errors="replace")[-2000:]
            )

    def stop(self) -> None:
        """End it, however far it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _read(self, lines: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(Line)
        try:
            for text in lines:
                line = decoder.decode(text)
                if line.ended:
                    self.losses = [from_json(loss) for loss in line.losses]
                else:
                    self._reports.put(TrainerReport(self.mode, line))
        finally:
            lines.close()
            self._reports.put(TrainerReport(self.mode, None))
