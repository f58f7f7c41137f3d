"""A program that trains in a process of its own, and what a service was told of it."""

import math
import os
from pathlib import Path

from tests.forking import fork
from tests.hooks.adapters.jobs import FRAMEWORKS
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from tests.waiting import LONGEST_S


def told_by(
    program: Path, folder: Path, service: StubService | None = None, *, framework: str
) -> StubService:
    """Runs a program of a framework's to its end, which must be a good one; it is given the
    folder, and works there."""
    output = folder / "output.txt"
    with serving(service or StubService()) as service:
        done = fork(
            FRAMEWORKS[framework],
            str(program),
            [str(folder)],
            output=output,
            environment=os.environ | {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": TOKEN},
            folder=folder,
        )
        assert done.wait(LONGEST_S) == 0, output.read_text()[-4000:]
    return service


def numbers(service: StubService, metric: str) -> list[float]:
    """Of all rows that have it, in the order of their coming. Others of the same frame are NaN
    there: such as the row of what was logged for a step that had already been sent."""
    found: list[float] = []
    for frame in service.frames.values():
        if metric in frame.metric_names:
            found += frame.metrics[:, frame.metric_names.index(metric)].tolist()
    return [value for value in found if not math.isnan(value)]
