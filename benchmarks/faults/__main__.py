"""Faults in real programs, and what the built-in rules say of them.

    python -m benchmarks.faults [--seeds 3] [--keep FOLDER] [--only TEXT] [--workers 2]

Trains every program of `programs` in health and with every fault of `catalogue`, hook attached,
some three seconds each. With `--keep`, what was trained stays in a folder, and is only judged
again the next time: minutes become seconds when a rule is being worked on.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.faults.recording import Trial, record, trials
from benchmarks.faults.scoring import Verdict, judge, score
from benchmarks.harness import machine, markdown_table
from benchmarks.rules import built_in_rules


def main() -> None:
    options = _options()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        chosen = trials(options.seeds, options.only)
        _record_all(chosen, folder, options.workers)
        rules = built_in_rules()
        verdicts = [judge(trial, folder, rules) for trial in chosen]
    print(_faults_table(verdicts), end="\n\n")
    print(_healthy_table(verdicts), end="\n\n")
    print(score(verdicts))


def _record_all(chosen: Sequence[Trial], folder: Path, workers: int) -> None:
    spawn = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        jobs = [pool.submit(record, trial, folder) for trial in chosen]
        for done, job in enumerate(jobs, start=1):
            job.result()
            if sys.stderr.isatty():
                print(f"\rtrained {done} of {len(jobs)}", end="", file=sys.stderr, flush=True)


def _faults_table(verdicts: Sequence[Verdict]) -> str:
    of_case: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.trial.case is not None:
            of_case[f"{verdict.trial.case.name} ({verdict.trial.program})"].append(verdict)
    lines = [
        (name, f"{sum(bool(v.answers) for v in group)}/{len(group)}", _delays(group), _words(group))
        for name, group in of_case.items()
    ]
    return markdown_table(("fault", "seen", "delay, steps", "said first"), lines)


def _delays(group: Sequence[Verdict]) -> str:
    return ", ".join("-" if v.delay is None else str(v.delay) for v in group)


def _words(group: Sequence[Verdict]) -> str:
    said = {
        f"{a.rule}{f' in {a.first_layer}' if a.first_layer else ''}"
        for v in group
        for a in v.answers[:1]
    }
    early = {f"(early: {a.rule} at {a.step})" for v in group for a in v.false_alarms}
    return "; ".join([*sorted(said), *sorted(early)])


def _healthy_table(verdicts: Sequence[Verdict]) -> str:
    of_program: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.trial.case is None:
            of_program[verdict.trial.program].append(verdict)
    lines = [
        (
            name,
            len(group),
            "; ".join(f"{a.rule} ({a.severity}) at {a.step}" for v in group for a in v.false_alarms)
            or "-",
        )
        for name, group in of_program.items()
    ]
    return markdown_table(("healthy program", "trials", "warnings and pages"), lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", default="", help="trials whose name holds this text")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
