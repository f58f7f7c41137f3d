"""Measures what watching a model costs on this machine: optimizer steps with and without the hook.

Gradients are random and set once; no forward or backward pass is run. So this measures the hook's
time per step, but not its share of a real step.
"""

import contextlib
import importlib
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch.findings import Finding, Verdict
from runwatch_hooks.attaching import attach
from runwatch_hooks.errors import AttachError
from runwatch_hooks.statistics.layer_names import name_tensors
from runwatch_hooks.statistics.totals import STATS

_STEPS: Final = 40
_LONGEST_S: Final = 10.0
_FLOAT_BYTES: Final = 4
_RANKS: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID")


def measure(place: str) -> list[Finding]:
    """`place` is `module:factory`. The factory takes no arguments and returns a model, or a model
    and its optimizer; without one, plain SGD is used."""
    try:
        model, optimizer = _made(place)
    except AttachError as error:
        return [Finding("model", place, Verdict.WRONG, str(error))]
    return list(_findings(place, model, optimizer))


def _made(place: str) -> tuple[nn.Module, Optimizer]:
    module_name, _, factory_name = place.partition(":")
    if not module_name or not factory_name:
        raise AttachError(f"found {place!r}, wanted module:factory")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Any = getattr(importlib.import_module(module_name), factory_name)()
    except Exception as error:  # the user's own code may raise anything
        raise AttachError(f"raised {type(error).__name__}: {error}") from error
    parts = cast("tuple[object, ...]", made) if isinstance(made, tuple) else (made,)
    model, optimizer = parts[0] if parts else None, parts[1] if len(parts) > 1 else None
    if not isinstance(model, nn.Module):
        raise AttachError(f"gave {type(model).__name__}, wanted a torch.nn.Module")
    trained = [one for one in model.parameters() if one.requires_grad]
    if not trained:
        raise AttachError("has no parameter that is trained")
    if optimizer is None:
        optimizer = torch.optim.SGD(trained, lr=1e-9)
    if not isinstance(optimizer, Optimizer):
        found = type(optimizer).__name__
        raise AttachError(f"gave {found}, wanted a torch.optim.Optimizer")
    return model, optimizer


def _findings(place: str, model: nn.Module, optimizer: Optimizer) -> Iterator[Finding]:
    named = name_tensors({"": model}, [optimizer])
    tensors = [one.tensor for one in named]
    num_groups = len(optimizer.param_groups)
    devices = ", ".join(sorted({str(one.device) for one in tensors}))
    yield Finding(
        "model",
        place,
        Verdict.GOOD,
        f"{len(tensors)} tensors of {sum(one.numel() for one in tensors):,} parameters "
        f"(parameter groups: {num_groups}), on {devices}",
    )
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    on_device = any(one.is_cuda for one in tensors)
    what = "time" if on_device else "CPU time"
    bare, watched, num_bytes = _times(model, optimizer, tensors)
    cost_ms = (_usual(watched) - _usual(bare)) * 1e3
    raw_bytes = len(tensors) * len(STATS) * _FLOAT_BYTES
    yield Finding(
        "model",
        "bytes a step",
        Verdict.GOOD,
        f"{raw_bytes:,} of {len(STATS)} stats; {num_bytes:,.0f} as sent, compressed",
    )
    yield Finding(
        "model",
        "cost a step",
        Verdict.GOOD,
        f"{cost_ms:.3g} ms of {what} ({len(watched)} steps, {torch.get_num_threads()} threads); "
        f"{cost_ms / 10:.2g} % of a step of 1 s"
        if cost_ms > 0
        else f"less than can be told from the noise of {len(watched)} steps",
    )


def _usual(times: list[float]) -> float:
    """The lower quartile, which is least affected by other work of the machine."""
    return statistics.quantiles(times, n=4)[0]


def _times(
    model: nn.Module, optimizer: Optimizer, tensors: list[torch.Tensor]
) -> tuple[list[float], list[float], float]:
    """Seconds of optimizer steps without and with the hook, and spool bytes per step.

    On a CPU this is the CPU time of the process, including the hook's own threads, and not affected
    by other programs.
    """

    clock = _device_time if any(one.is_cuda for one in tensors) else time.process_time
    bare = _timed(optimizer.step, clock)
    with tempfile.TemporaryDirectory() as folder, _alone():
        watch = attach(model, optimizer, run="doctor", spool=folder, allow=())

        def step() -> None:
            optimizer.step()
            watch.step(0.0)

        watched = _timed(step, clock)
        watch.finish()
        num_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*.seg"))
    bare += _timed(optimizer.step, clock)
    return bare, watched, num_bytes / (len(watched) + 1)


def _device_time() -> float:
    """The time after all queued device work is done; a measurement may wait for it."""
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)
    return time.perf_counter()


def _timed(step: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    """Times of steps, after one step that initialises state."""
    step()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < _STEPS and (len(times) < 3 or time.perf_counter() - begun < _LONGEST_S):
        before = clock()
        step()
        times.append(clock() - before)
    return times


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """Hide the environment of a service and of other ranks, and silence the hook's log."""
    log = logging.getLogger("runwatch_hooks")
    level = log.level
    ours = [name for name in os.environ if name in _RANKS or name.startswith("RUNWATCH_")]
    before = {name: os.environ.pop(name) for name in ours}
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
        os.environ.update(before)
