"""One callback of Lightning's in several fits: one that goes on from a checkpoint, one that breaks
off between two batches of a step, and one after a test that loads a checkpoint.

refitted_module.py FOLDER    FOLDER/fits.json has of each fit the run's id and the step to come next
"""

import json
import sys
from contextlib import suppress
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from runwatch_hooks.adapters.lightning import RunwatchCallback

BATCHES = 5
"""Of which two make a step, but for the epoch's last."""


class Ones(Dataset[Tensor]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(3)


class Still(LightningModule):
    """Its loss is 1 at each batch."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.fails_at = fails_at

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        if batch_idx == self.fails_at:
            raise ValueError("no more data")
        loss: Tensor = 0.0 * self.layer(batch).sum() + 1.0
        return loss

    def test_step(self, batch: Tensor, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Fits:
    def __init__(self, folder: Path) -> None:
        self.callback = RunwatchCallback("refitted", spool=folder / "spool")
        self.told: list[tuple[str, int]] = []
        self._folder = folder

    def trainer(self, num_epochs: int) -> Trainer:
        return Trainer(
            max_epochs=num_epochs,
            accumulate_grad_batches=2,
            default_root_dir=self._folder,
            callbacks=[self.callback],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    def fit(self, module: Still, num_epochs: int, checkpoint: Path | None = None) -> Trainer:
        trainer = self.trainer(num_epochs)
        with suppress(ValueError):
            trainer.fit(module, DataLoader(Ones()), ckpt_path=checkpoint)
        watch = self.callback.watch
        assert watch is not None
        self.told.append((str(watch.run_id), watch.next_step))
        return trainer


def main(folder: Path) -> None:
    fits = Fits(folder)
    checkpoint = folder / "last.ckpt"
    fits.fit(Still(), 1).save_checkpoint(checkpoint)
    fits.fit(Still(), 2, checkpoint)
    fits.fit(Still(fails_at=3), 1)
    fits.trainer(1).test(Still(), DataLoader(Ones()), ckpt_path=checkpoint, verbose=False)
    fits.fit(Still(), 1)
    (folder / "fits.json").write_text(json.dumps(fits.told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
