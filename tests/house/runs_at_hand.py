"""Runs that a reader of the documents has: one that trains, one that asks, one that broke.

A comment `<!-- the reader has: NAME -->` before a shell block names the function of this module
that gives what the block finds in its environment.
"""

import contextlib
import math
import os
import runpy
import threading
from collections.abc import Generator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import urllib3
from tests.house import reader
from tests.waiting import until

from runwatch_hooks import attach

_ALLOW: Final = ("checkpoint", "lower_lr", "rollback", "stop")
_NUM_STEPS, _FAULT_STEP = 8, 5


@contextlib.contextmanager
def training(*, breaks: threading.Event | None = None) -> Generator[str]:
    """The id of a run that takes a step every tenth of a second, in a thread, and may be told
    everything. What it is told is what the documents' commands do. Once `breaks` is set its
    losses are NaN."""
    names = reader.torch_loop()
    model, optimizer = names["model"], names["optimizer"]
    is_over = threading.Event()
    with attach(model, optimizer, run="llama-8b", checkpoints="ckpts", allow=_ALLOW) as watch:

        def train() -> None:
            while not is_over.wait(0.1):
                inputs = names["loader"][0].float()
                loss = model(inputs).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                is_broken = breaks is not None and breaks.is_set()
                watch.step(loss * math.nan if is_broken else loss)

        thread = threading.Thread(target=train)
        thread.start()
        run_id = str(watch.run_id)
        try:
            until(lambda: _asked("GET", f"/runs/{run_id}"))
            yield run_id
        finally:
            is_over.set()
            thread.join()


@contextlib.contextmanager
def proposal() -> Generator[Mapping[str, str]]:
    """COMMAND: the id of what a rule would do about a run, which waits for a person."""
    breaks = threading.Event()
    with training(breaks=breaks) as run_id:
        _asked("PATCH", f"/runs/{run_id}", {"policy": "ask"})
        breaks.set()  # not before: what fires under another policy is proposed to nobody
        yield {"COMMAND": until(lambda: _proposed(run_id))[0]}


def _proposed(run_id: str) -> list[str]:
    commands = _asked("GET", f"/runs/{run_id}/commands")["commands"]
    return [command["id"] for command in commands if command["state"] == "proposed"]


def _asked(method: str, path: str, message: object = None) -> Any:
    """What the service in the environment answers; nothing where it does not know the run yet."""
    reply = urllib3.request(
        method,
        f"{os.environ['RUNWATCH_URL']}/api/v1{path}",
        headers={"Authorization": f"Bearer {os.environ['RUNWATCH_TOKEN']}"},
        json=message,
        timeout=60.0,
    )
    assert reply.status < 300 or reply.status == HTTPStatus.NOT_FOUND, reply.data
    return reply.json() if reply.status < 300 else None


@contextlib.contextmanager
def bundle() -> Generator[Mapping[str, str]]:
    """BUNDLE: the folder of one, of a training of `mymodel.py` with an infinity in its data."""
    import torch
    from torch.nn.functional import cross_entropy

    model = runpy.run_path("mymodel.py")["make"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pairs = [(torch.randn(4, 64), torch.arange(4)) for _ in range(_NUM_STEPS)]
    pairs[_FAULT_STEP][0][2, 3] = math.inf
    with attach(model, optimizer, run="breaks", bundles="bundles") as watch:
        for inputs, targets in watch.batches(pairs):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            watch.step(loss)
    (folder,) = Path("bundles").glob("*/step-*")
    yield {"BUNDLE": str(folder)}
