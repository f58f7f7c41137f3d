"""A loop of one's own under Accelerate, with Runwatch: gradients of three batches a step.

    python examples/accelerate_loop.py --steps 200 --output out/

Started again with the same --output it goes on from Accelerate's saved state. RUNWATCH_URL and
RUNWATCH_TOKEN name the service, RUNWATCH_RUN_ID a run to go on with; without a service a spool is
written.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from runwatch_hooks.adapters.accelerate import attach

ACCUMULATED = 3


def main() -> None:
    arguments = parse()
    arguments.output.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    plain = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    model, optimizer, loader, scheduler = prepared(
        accelerator, plain, adamw, torch.optim.lr_scheduler.LambdaLR(adamw, lambda n: 0.999**n)
    )

    def train_one(inputs: Tensor, wanted: Tensor) -> Tensor:
        with accelerator.accumulate(model):
            loss = F.mse_loss(model(inputs), wanted)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return loss.detach()

    saved = arguments.output / "state"
    with (
        (arguments.output / "losses.jsonl").open("a", buffering=1) as losses,
        attach(
            accelerator,
            model,
            optimizer,
            run="accelerate-sine",
            scheduler=scheduler,
            checkpoints=arguments.output / "runwatch",
            allow=("checkpoint", "lower_lr", "stop"),
        ) as batches,
    ):
        watch = batches.watch
        if saved.exists():
            accelerator.load_state(str(saved))
        for inputs, wanted in endlessly(loader):
            step, loss = watch.next_step, train_one(inputs, wanted)
            report = batches.step(loss)
            losses.write(json.dumps({"step": step, "loss": float(loss)}) + "\n")
            if report is not None and (report.checkpoint_asked or watch.next_step % 10 == 0):
                accelerator.save_state(str(saved))
            if watch.is_stopping or watch.next_step >= arguments.steps:
                break


def prepared(accelerator: Accelerator, *objects: Any) -> Any:
    x = torch.linspace(-3, 3, 144).reshape(-1, 1)
    loader = DataLoader(TensorDataset(x, torch.sin(x)), batch_size=8, shuffle=True)
    model, optimizer, scheduler = objects
    return cast(Any, accelerator.prepare(model, optimizer, loader, scheduler))


def endlessly(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("accelerate-output"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
