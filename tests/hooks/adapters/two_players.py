"""A generator and its judge in Lightning, stepped by hand, which return no loss and log theirs.

two_players.py FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from runwatch_hooks.adapters.lightning import RunwatchCallback


class Players(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.judge = nn.Linear(2, 1), nn.Linear(1, 1)
        self.losses: list[float] = []

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        generating, judging = self._optimizers()
        made = self.generator(torch.randn(8, 2))
        loss = F.softplus(-self.judge(made)).mean()
        self._step(generating, loss)
        judged = F.softplus(self.judge(made.detach())) + F.softplus(-self.judge(batch[0]))
        self._step(judging, judged.mean())
        self.log_dict({"g_loss": loss, "lr": 0.5})
        if batch_idx % 2:
            self.log("now_and_then", float(batch_idx))
        self.losses.append(loss.item())

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", F.softplus(self.judge(batch[0])).mean())

    def _optimizers(self) -> Any:
        return self.optimizers()

    def _step(self, optimizer: Any, loss: Tensor) -> None:
        self.toggle_optimizer(optimizer)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.untoggle_optimizer(optimizer)

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.generator, self.judge)]


def main(folder: Path) -> None:
    torch.manual_seed(0)
    players = Players()
    trainer = Trainer(
        max_epochs=1,
        default_root_dir=folder,
        callbacks=[RunwatchCallback("two-players")],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=2,
    )
    loader = DataLoader(TensorDataset(torch.randn(32, 1)), batch_size=8)
    trainer.fit(players, loader, loader)
    (folder / "losses.json").write_text(json.dumps(players.losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
