"""`ranks_program.py` under torchrun, as a job of four processes, with what each of them wrote."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.forking import torchrun
from tests.waiting import LONGEST_S

NUM_RANKS: Final = 4

_PROGRAM: Final = Path(__file__).with_name("ranks_program.py")


@dataclass(frozen=True)
class Told:
    """What one rank wrote at its end."""

    trained: list[dict[str, Any]]
    """A row for each step it trained: step, loss, back_to, lr_scale, stop."""
    parameters: str
    """A fingerprint of the parameters, to the bit."""
    state: str
    """The same of parameters and buffers; the buffers of BatchNorm are each rank's own."""

    def turns(self) -> list[tuple[int, int]]:
        """Where it went back: the step after which, and the step trained next."""
        rows = [row for row in self.trained if row["back_to"] is not None]
        return [(row["step"], row["back_to"]) for row in rows]

    def losses(self) -> dict[int, str]:
        """Of each step, the loss of the last time it was trained."""
        return {row["step"]: row["loss"] for row in self.trained}


class RanksJob:
    """Started at once."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._output = folder / "output.txt"
        self.process = torchrun(
            _PROGRAM,
            ["--out", str(folder), *options],
            num_ranks=NUM_RANKS,
            output=self._output,
            environment={**os.environ, "RUNWATCH_SPOOL": str(folder / "spool"), **environment},
            folder=folder,
        )

    def num_trained(self) -> int:
        """Steps that the first rank of a living job has trained so far."""
        assert self.process.poll() is None, self._output.read_text()
        progress = self._folder / "progress-0"
        return int(progress.read_text() or 0) if progress.exists() else 0

    def finish(self) -> list[Told]:
        """What each rank told, once all have ended well."""
        assert self.process.wait(LONGEST_S) == 0, self._output.read_text()
        return [
            Told(**json.loads((self._folder / f"rank-{rank}.json").read_text()))
            for rank in range(NUM_RANKS)
        ]

    def end(self) -> None:
        """However it goes; torchrun ends its processes."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(LONGEST_S)


def unwatched(folder: Path, *options: str) -> list[Told]:
    """The same job with the hook switched off."""
    return RanksJob(folder, *options, environment={"RUNWATCH_DISABLED": "1"}).finish()
