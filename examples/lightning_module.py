"""Lightning's Trainer with one line of Runwatch: a small network that learns a sine.

    python examples/lightning_module.py --steps 200 --output out/

Started again with the same --output it goes on from Lightning's last checkpoint, as the next
attempt of the same run. RUNWATCH_URL and RUNWATCH_TOKEN name the service; without them a spool
is written.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from runwatch_hooks.adapters.lightning import RunwatchCallback

ACCUMULATED = 2


class Sine(LightningModule):
    def __init__(self, losses: Path) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
        self.losses = losses

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = F.mse_loss(self.net(batch[0]), batch[1])
        with self.losses.open("a") as file:
            file.write(json.dumps({"step": self.global_step, "loss": loss.item()}) + "\n")
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def main() -> None:
    arguments = parse()
    arguments.output.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.linspace(-3, 3, 160).reshape(-1, 1)
    pairs = TensorDataset(x, torch.sin(x))
    trainer = Trainer(
        max_steps=arguments.steps,
        accumulate_grad_batches=ACCUMULATED,
        gradient_clip_val=0.5,
        default_root_dir=arguments.output,
        callbacks=[
            RunwatchCallback("lightning-sine", allow=("checkpoint", "lower_lr", "stop")),
            ModelCheckpoint(arguments.output, save_last=True, every_n_train_steps=10),
        ],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = arguments.output / "last.ckpt"
    trainer.fit(
        Sine(arguments.output / "losses.jsonl"),
        DataLoader(pairs, batch_size=8, shuffle=True),
        DataLoader(pairs, batch_size=80),
        ckpt_path=last if last.exists() else None,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("lightning-output"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
