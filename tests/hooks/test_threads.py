"""Runs in several threads of one process: each sees its own, and none harms another's training."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from tests.hooks.recorder import RecordingLine, of_layer
from tests.hooks.tiny import tiny_gpt, train_one, watched
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.optimizer import register_optimizer_step_post_hook

from runwatch_hooks.run import LiveWatch

_TIMEOUT_S = 240

_SWEEP = """
import sys
import threading
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from runwatch_hooks import attach

torch.set_num_threads(1)
losses = {}

def train(seed):
    told = losses[seed] = []
    for trial in range(4):
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
        for parameter in model.parameters():
            parameter.data.normal_(0.0, 0.1, generator=generator)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with attach(model, optimizer, run=f"{seed}-{trial}", spool=sys.argv[1]) as watch:
            for _ in range(30 + 7 * seed):
                x = torch.randn(32, 64, generator=generator)
                loss = (model(x) - x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                watch.step(loss)
                told.append(loss.item().hex())

threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(losses.items()))
"""


def sweep(folder: Path, *, watched: bool) -> tuple[int, str]:
    """How a program ended that trains in four threads, and all the losses that it had."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _SWEEP, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={"RUNWATCH_DISABLED": "0" if watched else "1"},
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_sweep_in_threads_has_the_losses_that_it_has_without_us(tmp_path: Path) -> None:
    with_us = sweep(tmp_path, watched=True)

    assert with_us[0] == 0
    assert with_us == sweep(tmp_path, watched=False)


class Witnessed(nn.Parameter):
    """Remembers which threads have looked at its gradient."""

    seen_from: ClassVar[set[int]] = set()

    def __getattribute__(self, name: str) -> object:
        if name == "grad":
            Witnessed.seen_from.add(threading.get_ident())
        return super().__getattribute__(name)


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_another_thread_clips_is_none_of_ours(line: RecordingLine) -> None:
    ours, theirs = nn.Linear(2, 2), nn.Linear(2, 2)
    ours.weight = Witnessed(torch.ones(2, 2))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (ours, theirs)]
    watch = watched(ours, optimizers[0], line=line)

    def train_theirs() -> None:
        torch.autograd.backward(theirs(torch.ones(1, 2)).sum())
        clip_grad_norm_(theirs.parameters(), 0.1)
        optimizers[1].step()

    Witnessed.seen_from.clear()
    in_a_thread(train_theirs)
    watch.finish()

    assert Witnessed.seen_from <= {threading.get_ident()}


def test_a_training_is_seen_in_whatever_thread_it_goes_on(line: RecordingLine) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)

    def train() -> None:
        watch.step(train_one(model, optimizer, max_norm=0.1))

    in_a_thread(train)
    train()
    in_a_thread(train)
    watch.finish()

    assert line.metric("clipped") == [1.0, 1.0, 1.0]
    assert line.metric("optimizer_steps") == [1.0, 1.0, 1.0]
    assert all(of_layer(row, "grad_norm", "tokens.weight") > 0 for row in line.rows)


def test_a_run_may_begin_and_end_while_another_steps(line: RecordingLine) -> None:
    """As in another thread, but always at the worst of times: torch is going over its hooks."""
    ours, theirs = tiny_gpt(1), tiny_gpt(2)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (ours, theirs))
    watch = watched(ours, optimizer, line=line)
    begun: list[LiveWatch] = []

    def meanwhile(*_: object) -> None:
        begun.append(watched(theirs, other, line=RecordingLine()))
        begun[-1].finish()

    def nothing(*_: object) -> None:
        """Torch goes on to it once `meanwhile` has run."""

    handle = register_optimizer_step_post_hook(meanwhile)
    last = register_optimizer_step_post_hook(nothing)
    try:
        watch.step(train_one(ours, optimizer))
    finally:
        handle.remove()
        last.remove()
    watch.finish()

    assert len(begun) == 1
    assert line.metric("optimizer_steps") == [1.0]
