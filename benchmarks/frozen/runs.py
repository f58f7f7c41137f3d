"""What is trained to be frozen: processes whose runs a service records."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.frozen.recorder import Recorder
from benchmarks.frozen.records import Record
from benchmarks.frozen.trial import TRIALS
from benchmarks.rules import built_in_rules
from tests.hooks.uplink.stub_service import TOKEN, serving

ROOT: Final = Path(__file__).parents[2]
WAYS: Final = (
    "accumulation", "amp", "amp-fused", "bf16", "several-optimizers", "lbfgs", "sparse-embedding",
    "optimizer-in-backward", "frozen-at-first", "tied", "activation-checkpointing", "ema", "gan",
)  # fmt: skip
_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Job:
    """One process, or one launcher of ranks, and the records of its runs."""

    name: str
    record: Callable[[Path], dict[str, Record]]
    """In an empty folder; the records by the names of runs."""


def run(job: Job, folder: Path) -> dict[str, Record]:
    folder.mkdir()
    return job.record(folder)


def _observed(*arguments: str, folder: Path, layers_every: int = 1) -> dict[str, Record]:
    """Of a program that finds its service in the environment."""
    recorder = Recorder()
    with serving(recorder):
        _finish(arguments, folder, RUNWATCH_URL=recorder.url, RUNWATCH_TOKEN=TOKEN)
        return recorder.records(built_in_rules(), layers_every=layers_every)


def _commanded(folder: Path) -> dict[str, Record]:
    file = folder / "records.json"
    _finish(("-m", "benchmarks.frozen.commanded", str(file)), folder)
    records: dict[str, Record] = json.loads(file.read_text(encoding="utf-8"))
    return records


def of_logs(logs: Path) -> Job:
    """The alerts of a folder of CSV logs."""
    files = sorted(str(file) for file in logs.glob("*.csv") if file.name != "index.csv")
    program = ("-m", "runwatch_server.cli", "backtest", *files, "--rules", "builtin", "--json")

    def record(folder: Path) -> dict[str, Record]:
        found: Record = json.loads(_finish(program, folder))
        return {
            "logs": {
                f"{Path(one['file']).name} alert {number}": alert
                for one in found["runs"]
                for number, alert in enumerate(one["alerts"], 1)
            }
        }

    return Job("logs", record)


def _finish(arguments: tuple[str, ...], folder: Path, **environment: str) -> str:
    """What Python prints with these arguments. Raises RuntimeError with its output if it fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RUNWATCH_SPOOL": str(folder / "spool"),
        **environment,
    }
    done = subprocess.run(
        (sys.executable, *arguments),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def _example(program_name: str, *arguments: str, name: str = "") -> Job:
    program = str(ROOT / "examples" / f"{program_name}.py")
    return Job(name or program_name, lambda folder: _observed(program, *arguments, folder=folder))


def _ranks(name: str, *arguments: str) -> Job:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    program = str(ROOT / "examples" / f"{name}.py")
    return Job(name, lambda folder: _observed(*launcher, program, *arguments, folder=folder))


def _trial(name: str) -> Job:
    program = ("-m", "benchmarks.frozen.trial", name)
    return Job(
        f"fault-{name}",
        lambda folder: _observed(*program, str(folder), folder=folder, layers_every=25),
    )


JOBS: Final = (
    *map(_trial, TRIALS),
    _example("ways", *WAYS, "--steps=60"),
    *(
        (_example("ways", "compiled", "--steps=20", name="compiled"),)
        if shutil.which("g++")
        else ()
    ),
    _example("plain_loop", "--steps=100", "--fault-at=60"),
    _example("hf_trainer", "--steps=24"),
    _example("lightning_module", "--steps=30"),
    _example("accelerate_loop", "--steps=30"),
    _example("numpy_loop", "--steps=60"),
    _ranks("ddp", "--steps=40", "--nan-loss=1:30"),
    _ranks("fsdp", "--steps=40"),
    _ranks("pipeline", "--steps=40"),
    _ranks("tensor_parallel", "--steps=40"),
    Job("commanded", _commanded),
)
