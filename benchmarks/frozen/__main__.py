"""Freezes what the hook records, the rules find and commands do, and compares it with before.

    python -m benchmarks.frozen record FOLDER [--logs FOLDER] [--only TEXT]
    python -m benchmarks.frozen compare FOLDER [--logs FOLDER] [--only TEXT]

`record` trains the programs of `examples/`, some trials of the fault catalogue and one loop that
is commanded, and leaves a record of each run in the folder. `compare` does the same, prints what
differs from the folder's records and exits with 1 if anything does. With `--logs`, the alerts of
a folder of CSV logs are a record, too. Three minutes on two idle cores.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.frozen import records
from benchmarks.frozen.records import Record
from benchmarks.frozen.runs import JOBS, Job, of_logs, run

SHOWN = 20
"""Differences that are printed of a run."""


def main() -> None:
    options = _options()
    all_jobs = JOBS if options.logs is None else (*JOBS, of_logs(options.logs.resolve()))
    jobs = [job for job in all_jobs if options.only in job.name]
    handle = _write if options.action == "record" else _compare
    options.folder.mkdir(parents=True, exist_ok=True)
    num_bad = sum(handle(options.folder, job, found) for job, found in _run_all(jobs))
    sys.exit(1 if num_bad else 0)


def _run_all(jobs: list[Job]) -> Iterator[tuple[Job, dict[str, Record]]]:
    """Two at a time."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        yield from zip(jobs, pool.map(partial(_run, Path(scratch)), jobs), strict=True)


def _run(scratch: Path, job: Job) -> dict[str, Record]:
    """The job's records by the names of their files; none if it failed, which is printed."""
    start = time.monotonic()
    try:
        found = run(job, scratch / job.name)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"{job.name} failed: {error}", file=sys.stderr, flush=True)
        return {}
    print(f"{job.name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return {
        job.name if len(found) == 1 else f"{job.name}.{name}": record
        for name, record in found.items()
    }


def _write(folder: Path, job: Job, found: dict[str, Record]) -> int:
    """1 if there is nothing to write."""
    for name, record in found.items():
        records.write(record, folder / f"{name}.json")
    return int(not found)


def _compare(folder: Path, job: Job, found: dict[str, Record]) -> int:
    """How many of the job's runs differ from the folder's; prints how."""
    before = {file.stem: file for file in folder.glob("*.json") if _job_of(file) == job.name}
    num_other = int(not found)
    for name in sorted({*found, *before}):
        old = records.read(before[name]) if name in before else {}
        lines = records.differences(old, found.get(name, {}))
        num_other += bool(lines)
        print(f"{name}: {len(lines)} differences in {len(old)} entries")
        print("".join(f"    {line}\n" for line in lines[:SHOWN]), end="", flush=True)
    return num_other


def _job_of(file: Path) -> str:
    return file.name.split(".", 1)[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="jobs whose name contains this text")
    parser.add_argument("--logs", type=Path, help="a folder of CSV logs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
