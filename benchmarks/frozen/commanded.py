"""A training that is given each command at a step of its own, and a record of it.

    python -m benchmarks.frozen.commanded FILE

The service that commands it is in the same process, so that a command has arrived before the step
after which it is to be carried out.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import torch
from benchmarks.frozen.recorder import Recorder
from benchmarks.rules import built_in_rules
from tests.hooks.uplink.stub_service import TOKEN, serving
from torch import Tensor, nn
from torch.nn import functional

from runwatch.commands import AnyAction, Checkpoint, Command, Detail, LowerLr, Rollback, Stop
from runwatch.vocabulary import CommandId
from runwatch_hooks import attach

ORDERS: Final[dict[int, AnyAction]] = {
    12: Checkpoint(),
    25: LowerLr(0.5),
    30: Detail(3),
    44: Rollback(before_step=38),
    70: Stop(),
}
"""By the step at whose end the command is carried out."""


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recorder = Recorder()
    with serving(recorder), tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RUNWATCH_URL": recorder.url, "RUNWATCH_TOKEN": TOKEN}
        _train(recorder, Path(folder))
        records = recorder.records(built_in_rules())
    Path(sys.argv[1]).write_text(json.dumps(records), encoding="utf-8")


def _train(recorder: Recorder, folder: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    orders = dict(ORDERS)
    with attach(
        model,
        optimizer,
        run="commanded",
        scheduler=scheduler,
        spool=folder / "spool",
        checkpoints=folder / "checkpoints",
        snapshot_every=10,
        good_after=5,
        allow=("checkpoint", "detail", "lower_lr", "rollback", "stop"),
    ) as watch:
        for step in watch.steps(100):
            inputs, targets = _batch(step)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            if step in orders:
                recorder.order(_command(step, orders.pop(step)))
            watch.step(loss)


def _batch(step: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    return inputs, inputs[:, :4].argmax(1)


def _command(step: int, action: AnyAction) -> Command:
    command_id = CommandId(f"{step:026}")
    return Command(id=command_id, action=action, attempt=1, expires_at=time.time() + 600.0)


if __name__ == "__main__":
    main()
