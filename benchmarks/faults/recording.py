"""Trains a program with the hook attached, and reads back what the hook wrote.

There is no service: the hook writes its spool, and what lies there is the frames that a service
would get. So a trial is trained once and can be judged again by other rules in no time.
"""

import logging
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from benchmarks.faults.catalogue import CASE_OF_NAME, CASES, Case
from benchmarks.faults.loop import HEALTHY, Fault, Program, keep, restore, train
from benchmarks.faults.programs import PROGRAMS, RESUMES_AT, STEPS, build

from runwatch.codec import decode_frame
from runwatch.layouts import Layout
from runwatch.rules import Rows
from runwatch_hooks import attach
from runwatch_hooks.uplink.segments import scan_record
from runwatch_hooks.uplink.spool import SpoolFolder, find_spools

FAULT_STEPS: Final = range(420, 480)
"""Where a fault strikes that is not there from the start: the seed chooses."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One training: a program, a seed, and a fault or none."""

    program: str
    seed: int
    fault: str = ""
    """The name of its case in the catalogue; empty in a healthy program."""

    @property
    def case(self) -> Case | None:
        return CASE_OF_NAME[self.fault] if self.fault else None

    @property
    def name(self) -> str:
        return f"{self.fault or 'healthy'}, {self.program}, seed {self.seed}"

    @property
    def fault_step(self) -> int | None:
        """The first step that is ill; None in a healthy program."""
        if self.case is None:
            return None
        if self.case.is_from_start:
            return 0
        if self.case.is_at_resume:
            return RESUMES_AT
        return random.Random(f"{self.name}").choice(FAULT_STEPS)


def trials(num_seeds: int, only: str = "") -> list[Trial]:
    """Every healthy program and every fault, under each seed."""
    healthy = [Trial(program, seed) for program in PROGRAMS for seed in range(num_seeds)]
    ill = [Trial(case.program, seed, case.name) for case in CASES for seed in range(num_seeds)]
    return [trial for trial in [*healthy, *ill] if only in trial.name]


def record(trial: Trial, folder: Path) -> None:
    """Train it, and leave its spool below the folder. What is there already is left alone."""
    target = folder / _folder_name(trial)
    if (target / "done").exists():
        return
    shutil.rmtree(target, ignore_errors=True)  # of a training that was broken off
    logging.getLogger("runwatch_hooks").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    program = build(trial.program, trial.seed)
    fault = trial.case.make() if trial.case else HEALTHY
    fault.begin(program)
    state = None
    if program.resumes_at:
        state = _train(trial, target, program, fault, program.resumes_at)
        kept = keep(program)
        fault.resume(kept)
        program = build(trial.program, trial.seed)
        restore(program, kept)
    _train(trial, target, program, fault, STEPS, state)
    (target / "done").touch()


def _train(
    trial: Trial,
    spool: Path,
    program: Program,
    fault: Fault,
    stop: int,
    state: dict[str, object] | None = None,
) -> dict[str, object]:
    """One process of it, up to a step; what the next one goes on from."""
    watch = attach(
        program.models,
        [program.optimizer, *(optimizer for _, optimizer in program.others)],
        run=trial.name,
        run_id=str(state["run_id"]) if state else None,
        state=state,
        spool=spool,
        scheduler=program.scheduler,
        scaler=program.scaler,
    )
    fault_step = trial.fault_step
    train(program, watch, stop, fault, STEPS if fault_step is None else fault_step)
    state = watch.state_dict()
    watch.finish()
    return state


def read_rows(trial: Trial, folder: Path) -> Iterator[Rows]:
    """The rows of a trial as the service would judge them."""
    for attempt, path in enumerate(find_spools(folder / _folder_name(trial)), start=1):
        documents = SpoolFolder(path).read_meta().layouts
        layouts = {name: Layout.from_document(document) for name, document in documents.items()}
        for payload in _payloads(path):
            frame = decode_frame(payload)
            # Attempts are numbered by the service, which was not there.
            frame = replace(frame, attempt=attempt)
            yield Rows.from_frame(frame, layouts.get(frame.layout_hash))


def _payloads(path: Path) -> Iterator[bytes]:
    for segment in sorted(path.glob("*.seg")):
        octets, place = segment.read_bytes(), 0
        while (scan := scan_record(octets, place)).record is not None:
            yield scan.record.payload
            place = scan.end


def _folder_name(trial: Trial) -> str:
    return trial.name.replace(" ", "_").replace("/", "-")
