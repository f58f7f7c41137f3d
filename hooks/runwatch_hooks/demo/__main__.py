"""`python -m runwatch_hooks.demo`: one training of the demo, reported as lines of JSON on stdout.

    {"step": 0, "loss": 4.61}                        each step
    {"step": 503, "loss": 3.4, "rolled_back_to": 475}    ... after which it was rolled back
    {"ended": true, "losses": [...]}                 at the end: the losses of the effective history

The service's address and the run's id are taken from the environment, as for any trainer.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import TextIO

import msgspec
import torch

from runwatch.nonfinite import to_json
from runwatch_hooks import attach
from runwatch_hooks.demo.training import (
    Fault,
    Setting,
    Training,
    read_corpus,
    train_alone,
    train_watched,
)
from runwatch_hooks.watch import StepReport

MODES = ("clean", "unprotected", "protected")


class Told:
    """Writes a line per step, and keeps the loss of each step of the effective history."""

    def __init__(self, stream: TextIO, num_steps: int) -> None:
        self._stream = stream
        self._losses = [math.nan] * num_steps

    def __call__(self, step: int, loss: float, report: StepReport | None) -> None:
        self._losses[step] = loss
        line: dict[str, object] = {"step": step, "loss": to_json(loss)}
        if report is not None and report.rolled_back_to is not None:
            line["rolled_back_to"] = report.rolled_back_to
        self._write(line)

    def end(self) -> None:
        self._write({"ended": True, "losses": [to_json(loss) for loss in self._losses]})

    def _write(self, line: dict[str, object]) -> None:
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        self._stream.flush()


def main() -> None:
    options = _options()
    # One thread: gives the same bits on every run, and the demo trains two models in parallel.
    torch.set_num_threads(1)
    setting = Setting(steps=options.steps, seed=options.seed)
    told = Told(sys.stdout, setting.steps)
    fault = None if options.mode == "clean" else Fault(step=options.fault_step)
    training = Training(setting, read_corpus(), fault)
    if options.mode == "unprotected":
        train_alone(training, setting, told)
    else:
        _train_watched(options.mode, training, setting, told, options.checkpoints)
    told.end()


def _train_watched(
    mode: str, training: Training, setting: Setting, told: Told, checkpoints: Path | None
) -> None:
    with attach(
        training.model,
        training.optimizer,
        run=f"demo-{mode}",
        project="demo",
        scheduler=training.scheduler,
        checkpoints=checkpoints,
        snapshot_every=setting.snapshot_every,
        allow=("checkpoint", "rollback", "lower_lr"),
        config={"setting": msgspec.to_builtins(setting)},
    ) as watch:
        train_watched(training, setting, told, watch)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runwatch_hooks.demo", description=__doc__)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--steps", type=int, default=Setting().steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault-step", type=int, default=500)
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints; none without")
    return parser.parse_args()


if __name__ == "__main__":
    main()
