"""Rows, transports and waiting, with defaults: a test states only what it is about."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.hooks.uplink.stub_service import TOKEN

from runwatch.frames import Event
from runwatch.layouts import Layer, Layout
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.step.row import Row
from runwatch_hooks.uplink import Uplink, UplinkSettings

RUN: Final = RunOpen(run_id=RunId(ulid(1_700_000_000_000, b"0123456789")), name="tiny")
ATTEMPT: Final = AttemptOpen(token=ulid(1_700_000_000_001, b"0123456789"), started_at=1.7e9)
LAYOUT: Final = Layout((Layer("wte.weight"), Layer("head.weight")), ("grad_norm",))

KILLED: Final = """
import os, sys
from pathlib import Path
from tests.hooks.uplink.factories import ATTEMPT, RUN, settings, train
from tests.waiting import until
from runwatch_hooks.uplink import Uplink
uplink = Uplink(settings(Path(sys.argv[1])), RUN, ATTEMPT, rank=int(sys.argv[2]))
train(uplink, 50)
uplink.start()  # only now, so that all of them are in the first frame that is written
until(lambda: any(path.stat().st_size for path in uplink.spool_path.glob("*.seg")))
os.kill(os.getpid(), 9)
"""
"""A trainer of 50 steps, as one rank of a spool's folder, that is killed once they lie there."""


def row(step: int = 0, **changes: Any) -> Row:
    """A step with a loss and a layout's worth of stats."""
    fields: dict[str, Any] = {
        "step": step,
        "segment": 0,
        "at": 1.7e9 + step,
        "metrics": {"loss": 1.0 + step},
        "layout": LAYOUT,
        "stats": np.full(LAYOUT.num_columns, step, np.float32),
    }
    return Row(**(fields | changes))


def event(step: int = 0, kind: str = "phase") -> Event:
    return Event(step=step, kind=kind, at=1.7e9 + step)


def settings(spool_dir: Path, url: str | None = None, **changes: Any) -> UplinkSettings:
    """Quick enough for a test, and good for a disk that is nearly full."""
    fields: dict[str, Any] = {
        "send_interval_s": 0.01,
        "heartbeat_s": 0.2,
        "long_poll_s": 2.0,
        "min_free_bytes": 0,
        "token": TOKEN,
    }
    return UplinkSettings(spool_dir=spool_dir, url=url, **(fields | changes))


def started(
    spool_dir: Path,
    url: str | None = None,
    *,
    rank: int = 0,
    attempt: AttemptOpen = ATTEMPT,
    **changes: Any,
) -> Uplink:
    uplink = Uplink(settings(spool_dir, url, **changes), RUN, attempt, rank)
    uplink.start()
    return uplink


def train(uplink: Uplink, num_steps: int, first_step: int = 0) -> None:
    for step in range(first_step, first_step + num_steps):
        uplink.put_row(row(step))
