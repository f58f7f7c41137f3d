"""The content of a bundle's `bundle.json`, for people and for `runwatch replay`."""

import platform
import sys
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import torch

import runwatch
from runwatch.nonfinite import JsonNumber, is_absent
from runwatch_hooks.statistics.totals import NONFINITE, PARAM_NORM
from runwatch_hooks.step.row import Row

FORMAT: Final = 1


class BrokenLayer(msgspec.Struct, frozen=True):
    """A layer whose gradient was not finite."""

    layer: str
    step: int
    nonfinite: float
    """Number of non-finite elements; on an accelerator, 1 may stand for any number."""


class Kept(msgspec.Struct, frozen=True):
    """A training state in a bundle."""

    file: str
    step: int
    """The state is the one after this step. For the state before the fault this is the step before,
    although the forward pass has already changed some buffers (BatchNorm's)."""
    is_finite: bool
    has_optimizers: bool
    is_sharded: bool = False
    """The parameters are one rank's shards, which a single process cannot replay."""


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a fault, except tensors."""

    format: int = FORMAT
    run_id: str
    rank: int
    step: int
    """The first step whose loss or gradients were not finite."""
    noticed_step: int
    """The step after which that was known; some steps later on an accelerator."""
    segment: int
    at: float
    """Unix seconds at the end of the step, by the trainer's clock."""
    metrics: dict[str, JsonNumber]
    """The step's metrics."""
    order: list[BrokenLayer]
    """Layers with non-finite gradients, in the order in which they broke; within a step the one
    nearest to the loss first, because backward starts there."""
    broken_before: list[str]
    """Layers whose parameter was not finite before the step."""
    num_batches: int
    batch_note: str
    """Why there is no batch, or what is doubtful about it; empty otherwise."""
    rng_at: str
    """When the generators' states were taken. `batch`: as each batch was given to the loop;
    `boundary`: at the end of the step before."""
    eval_modules: list[str]
    """Modules that were in evaluation mode."""
    state: Kept | None
    """The state at the fault."""
    good: Kept | None
    """The newest good state before the fault; only if rollbacks are allowed."""
    notes: list[str]
    """What was left out, and why."""
    versions: dict[str, str]


def versions() -> dict[str, str]:
    return {
        "runwatch": runwatch.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cuda": str(torch.version.cuda or ""),
        "platform": sys.platform,
    }


def order_of_onset(rows: Sequence[Row]) -> list[BrokenLayer]:
    """Layers with non-finite gradients in the order in which they broke; rows in step order."""
    found: dict[str, BrokenLayer] = {}
    for row in rows:
        if row.layout is None or row.stats is None:
            continue
        counts = row.stats.reshape(len(row.layout.stats), -1)[NONFINITE]
        counts = np.where(is_absent(counts), 0.0, counts)
        for slot in reversed(np.flatnonzero(~(counts == 0.0)).tolist()):
            name = row.layout.layer_names[slot]
            found.setdefault(name, BrokenLayer(name, row.step, float(counts[slot])))
    return list(found.values())


def broken_before(row: Row) -> list[str]:
    """Layers whose parameter's norm, read before the optimizer stepped, is not finite."""
    if row.layout is None or row.stats is None:
        return []
    norms = row.stats.reshape(len(row.layout.stats), -1)[PARAM_NORM]
    slots = np.flatnonzero(~is_absent(norms) & ~np.isfinite(norms)).tolist()
    return [row.layout.layer_names[slot] for slot in slots]
