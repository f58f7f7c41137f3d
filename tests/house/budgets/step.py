"""What an ordinary step of a plain loop costs: files, functions and calls on the training thread,
and the threads that the hook runs beside it.

    python -m tests.house.budgets.step    # prints the figures as JSON

The loop trains a model of four tensors. Comprehensions are left out: from Python 3.12
on they are no calls.
"""

import json
import os
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from tests.waiting import until
from torch import nn

import runwatch
import runwatch_hooks
from runwatch_hooks import Watch, attach

PRODUCT: Final = tuple(
    str(Path(str(package.__file__)).parent) + os.sep for package in (runwatch, runwatch_hooks)
)
OBSERVERS: Final = os.path.join(PRODUCT[1], "observers") + os.sep
INLINED: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
WARM_STEPS, TRACED_STEPS = 40, 21

Trace = Counter[tuple[str, str]]
"""Calls by file and function."""


def traced(step: Callable[[], object]) -> Trace:
    """The calls of one step into the product, on this thread."""
    calls: Trace = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PRODUCT):
            return
        if code.co_name not in INLINED:
            calls[code.co_filename, code.co_qualname] += 1

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def figures() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        traces = _traces(folder)
    middle = sorted(traces, key=lambda calls: calls.total())[len(traces) // 2]
    observers: dict[str, set[str]] = defaultdict(set)
    for file, function in middle:
        if file.startswith(OBSERVERS):
            observers[file].add(function)
    outside = [file for file, _ in middle if not file.startswith(OBSERVERS)]
    return {
        "step_files": len(set(outside)),
        "step_functions": len(outside),
        "step_functions_an_observer": max(map(len, observers.values()), default=0),
        "step_calls": middle.total(),
        "hook_threads": len(_threads_of_a_served_run()),
    }


def _traces(spool: str) -> list[Trace]:
    """Of the later steps of a run without a service."""
    step, watch = _loop(spool=spool)
    for _ in range(WARM_STEPS):
        step()
    traces = [traced(step) for _ in range(TRACED_STEPS)]
    watch.finish()
    return traces


def _threads_of_a_served_run() -> set[str]:
    """The names of those that the hook starts: not of one at the end, for what a service that does
    not answer has not taken."""
    started: set[str] = set()
    start = threading.Thread.start

    def note(self: threading.Thread) -> None:
        if self.name.startswith("runwatch"):
            started.add(self.name)
        start(self)

    threading.Thread.start = note  # type: ignore[method-assign]
    with serving(StubService()) as service, tempfile.TemporaryDirectory() as spool:
        step, watch = _loop(spool=spool, url=service.url, token=TOKEN)
        for _ in range(WARM_STEPS):
            step()
        until(lambda: service.frames and service.num_polls)  # all threads have begun
        before_the_end = set(started)
        watch.finish()
    return before_the_end


def _loop(**options: Any) -> tuple[Callable[[], None], Watch]:
    """A step of a plain loop, and the watch of its run."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = attach(model, optimizer, run="step", **options)

    def step() -> None:
        inputs = torch.randn(8, 16)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs[:, :4]).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)

    return step, watch


if __name__ == "__main__":
    sys.stdout.write(json.dumps(figures()))
