"""A program that trains in a process of its own, and what a service was told of it."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.hooks.transport.stub_service import TOKEN, StubService, serving

ROOT: Final = Path(__file__).parents[3]


def told_by(program: Path, folder: Path, service: StubService | None = None) -> StubService:
    """Runs a program to its end, which must be a good one; it is given the
    folder, and works there."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with serving(service or StubService()) as service:
        done = subprocess.run(
            [sys.executable, str(program), str(folder)],
            env=os.environ
            | {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": TOKEN, "PYTHONPATH": paths},
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return service


def numbers(service: StubService, metric: str) -> list[float]:
    """Of all rows that have it, in the order of their coming. Others of the same frame are NaN
    there: such as the row of what was logged for a step that had already been sent."""
    found: list[float] = []
    for frame in service.frames.values():
        if metric in frame.metric_names:
            found += frame.metrics[:, frame.metric_names.index(metric)].tolist()
    return [value for value in found if not math.isnan(value)]
