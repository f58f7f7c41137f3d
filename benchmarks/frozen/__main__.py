"""Freezes what the hook records, the rules find and commands do, and compares it with before.

    python -m benchmarks.frozen record FOLDER [--logs FOLDER] [--only TEXT]
    python -m benchmarks.frozen compare FOLDER [--logs FOLDER] [--only TEXT]

`record` trains the programs of `examples/`, some trials of the fault catalogue and one loop that
is commanded, and leaves a record of each run in the folder. `compare` does the same, prints what
differs from the folder's records and exits with 1 if anything does. With `--logs`, the alerts of
a folder of CSV logs are a record, too. Three minutes on two idle cores.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    if options.action == "record":
        options.folder.mkdir(parents=True, exist_ok=True)
        for name, record in _run_all(jobs).items():
            records.write(record, options.folder / f"{name}.json")
        return
    sys.exit(1 if _compare(options.folder, jobs) else 0)


def _run_all(jobs: list[Job]) -> dict[str, Record]:
    """Two at a time."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        folders = [Path(scratch) / job.name for job in jobs]
        found = list(pool.map(run, jobs, folders))
    return {
        job.name if len(of_job) == 1 else f"{job.name}.{name}": record
        for job, of_job in zip(jobs, found, strict=True)
        for name, record in of_job.items()
    }


def _compare(folder: Path, jobs: list[Job]) -> int:
    """How many runs differ."""
    now = _run_all(jobs)
    names = {job.name for job in jobs}
    before = {file.stem: file for file in folder.glob("*.json") if _job_of(file) in names}
    num_other = 0
    for name in sorted({*now, *before}):
        old = records.read(before[name]) if name in before else {}
        lines = records.differences(old, now.get(name, {}))
        num_other += bool(lines)
        print(f"{name}: {len(lines)} differences in {len(old)} entries")
        print("".join(f"    {line}\n" for line in lines[:SHOWN]), end="")
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
