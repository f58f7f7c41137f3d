"""What acting is worth: the same faults with nobody there, and under the policy `auto`.

    python -m benchmarks.faults.recovery [--seeds 3] [--only TEXT] [--pace-ms 100]

Each fault is trained three times: clean, unprotected (no hook), and protected by a real service
that may roll back and lower the learning rate. A fault that is a matter of a moment (a flipped
bit) strikes once, and the steps that a rollback brings round again are healthy; one that lies in
the data strikes again whenever its batch is read.

These programs take some milliseconds a step, so that hundreds of steps pass until a command comes:
more than the snapshots in memory reach back. `--pace-ms` lets each step of the protected training
take at least so long, as those of trainings do that are worth watching.
"""

import argparse
import logging
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
from benchmarks.faults.catalogue import CASE_OF_NAME
from benchmarks.faults.loop import HEALTHY, Batch, Fault, Program, train
from benchmarks.faults.programs import STEPS, build
from benchmarks.faults.recording import Trial
from benchmarks.harness import Service, machine, markdown_table, running_service
from torch import Tensor

from runwatch.vocabulary import PolicyMode, RunId
from runwatch_hooks import attach
from runwatch_hooks.watch import InertWatch, StepReport, Watch
from runwatch_server.clock import Clock
from runwatch_server.demo.client import Client

PROJECT: Final = "recovery"
LAST: Final = 50
"""Steps at the end whose mean loss is a training's result."""
SAME: Final = 0.05
"""Relative; a result this near to the clean one is as good."""
OF_THE_MOMENT: Final = (
    "NaN in a batch",
    "an empty batch: 0 / 0",
    "NaN in one layer's gradient",
    "infinity in one layer's gradient",
    "NaN in a parameter",
    "gradients times 10, once",
    "gradients times 1000, once",
    "a bit flips in a gradient",
    "a bit flips in a weight",
    "inputs times 30, once",
    "units die",
)
"""They strike once: what a rollback brings round again is healthy."""
LASTING: Final = ("learning rate times 100", "learning rate times 30", "noise for good")
"""They strike whenever they are met: going back alone does not help."""


class Once(Fault):
    """A fault of the moment: a step that comes round again is spared."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._latest = -1
        self._is_ill = False

    def begin(self, program: Program) -> None:
        self._fault.begin(program)

    def before(self, program: Program, step: int) -> None:
        self._is_ill = step > self._latest
        self._latest = max(step, self._latest)
        if self._is_ill:
            self._fault.before(program, step)

    def batch(self, batch: Batch, step: int) -> Batch:
        return self._fault.batch(batch, step) if self._is_ill else batch

    def loss(self, loss: Tensor, step: int) -> Tensor:
        return self._fault.loss(loss, step) if self._is_ill else loss

    def gradients(self, program: Program, step: int) -> None:
        if self._is_ill:
            self._fault.gradients(program, step)


@dataclass(slots=True)
class Course:
    """What a training's steps came to: of each step, the last time that it was trained."""

    pace_s: float = 0.0
    """The least that a step takes."""
    losses: dict[int, float] = field(default_factory=dict[int, float])
    num_rollbacks: int = 0
    num_steps_lost: int = 0

    def tell(self, loss: float, report: StepReport) -> None:
        self.losses[report.step] = loss
        if report.rolled_back_to is not None:
            self.num_rollbacks += 1
            self.num_steps_lost += report.step + 1 - report.rolled_back_to
        time.sleep(self.pace_s)

    @property
    def result(self) -> float:
        """The mean loss of the last steps: NaN where one of them is."""
        return statistics.fmean(
            self.losses.get(step, math.nan) for step in range(STEPS - LAST, STEPS)
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fault under one seed: three trainings."""

    fault: str
    clean: float
    unprotected: float
    protected: float
    course: Course

    @property
    def harm(self) -> float:
        return _above(self.unprotected, self.clean)

    @property
    def harm_left(self) -> float:
        return _above(self.protected, self.clean)

    @property
    def is_worse_for_it(self) -> bool:
        """Whether it would have been better to leave it alone."""
        return self.harm_left > max(self.harm, 0.0) + SAME


def outcome(trial: Trial, service: Service, spool: Path, pace_s: float) -> Outcome:
    """Train it clean, unprotected and protected."""
    clean, unprotected, protected = Course(), Course(), Course(pace_s)
    _train(trial, HEALTHY, clean, _unwatched)
    _train(trial, _fault(trial), unprotected, _unwatched)
    _train(
        trial, _fault(trial), protected, lambda program: _watched(trial, program, service, spool)
    )
    return Outcome(trial.fault, clean.result, unprotected.result, protected.result, protected)


def _train(
    trial: Trial, fault: Fault, course: Course, watch_of: Callable[[Program], Watch]
) -> None:
    program = build(trial.program, trial.seed)
    fault.begin(program)
    with watch_of(program) as watch:
        train(program, watch, STEPS, fault, trial.fault_step or 0, course.tell)


def _fault(trial: Trial) -> Fault:
    assert trial.case is not None, "only what is ill can recover"
    fault = trial.case.make()
    return Once(fault) if trial.fault in OF_THE_MOMENT else fault


def _unwatched(program: Program) -> Watch:
    return InertWatch(RunId(""))


def _watched(trial: Trial, program: Program, service: Service, spool: Path) -> Watch:
    run_id = RunId(Clock().new_ulid())
    with Client(service.url, service.process.admin_key) as client:
        key = client.create_key("recovery", "ingest", project=PROJECT)
        client.open_run(run_id, trial.name, project=PROJECT, policy=PolicyMode.AUTO)
    return attach(
        program.models,
        [program.optimizer, *(optimizer for _, optimizer in program.others)],
        run=trial.name,
        project=PROJECT,
        run_id=run_id,
        url=service.url,
        token=key,
        spool=spool,
        scheduler=program.scheduler,
        scaler=program.scaler,
        snapshot_every=25,
        allow=("checkpoint", "lower_lr", "rollback"),
    )


def _above(result: float, clean: float) -> float:
    """How far above the clean loss, relative to it; infinite where it is no number."""
    return (result - clean) / abs(clean) if math.isfinite(result) else math.inf


def _table(outcomes: Sequence[Outcome]) -> str:
    lines: list[tuple[object, ...]] = []
    for fault in dict.fromkeys(found.fault for found in outcomes):
        group = [found for found in outcomes if found.fault == fault]
        lines.append(
            (
                fault,
                _percents([found.harm for found in group]),
                _percents([found.harm_left for found in group]),
                ", ".join(str(found.course.num_rollbacks) for found in group),
                ", ".join(str(found.course.num_steps_lost) for found in group),
                sum(found.is_worse_for_it for found in group),
            )
        )
    heading = ("fault", "unprotected", "protected", "rollbacks", "steps trained again", "did harm")
    return markdown_table(heading, lines)


def _percents(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:+.0%}" if math.isfinite(share) else "NaN" for share in shares)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    parser.add_argument("--pace-ms", type=float, default=0.0)
    options = parser.parse_args()
    logging.getLogger("runwatch_hooks").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    print(machine())
    chosen = [
        Trial(CASE_OF_NAME[name].program, seed, name)
        for name in (*OF_THE_MOMENT, *LASTING)
        for seed in range(options.seeds)
        if options.only in name
    ]
    with running_service() as service, tempfile.TemporaryDirectory() as spool:
        outcomes = [outcome(trial, service, Path(spool), options.pace_ms / 1e3) for trial in chosen]
    print(_table(outcomes))


if __name__ == "__main__":
    main()
