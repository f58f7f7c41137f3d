"""Trainings under other people's loops, with a NaN in their data; what they keep of it is a bundle.

broken_frameworks.py PROGRAM FOLDER    one of hf_trainer, lightning_module, accelerate_loop

They are guarded, and leave their weights in FOLDER/weights.pt.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

BATCH, ACCUMULATED, STEPS = 2, 2, 4
BAD_ROW = 9
"""In the first of the third step's two batches."""


class Rows(Dataset[dict[str, Tensor]]):
    """Each tells by `number` which it is."""

    def __len__(self) -> int:
        return BATCH * ACCUMULATED * STEPS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x = torch.full((3,), torch.nan if index == BAD_ROW else 0.1 * index)
        return {"x": x, "number": torch.tensor(index)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: Tensor, number: Tensor) -> dict[str, Tensor]:
        return {"loss": F.mse_loss(self.layer(x)[:, 0], number.float())}


def _places(folder: Path) -> Any:
    return {"spool": folder / "spool", "bundles": folder / "bundles", "guard": True}


def _leave(net: nn.Module, folder: Path) -> None:
    torch.save({name: one.detach() for name, one in net.named_parameters()}, folder / "weights.pt")


def hf_trainer(folder: Path) -> None:
    from transformers import Trainer, TrainingArguments

    from runwatch_hooks.adapters.huggingface import RunwatchCallback

    class InOrder(Trainer):
        def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
            return DataLoader(Rows(), batch_size=BATCH)

    net = Net()
    InOrder(
        net,
        TrainingArguments(
            output_dir=str(folder / "out"),
            max_steps=STEPS,
            gradient_accumulation_steps=ACCUMULATED,
            remove_unused_columns=False,
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Rows(),
        callbacks=[RunwatchCallback("broken", **_places(folder))],
    ).train()
    _leave(net, folder)


def lightning_module(folder: Path) -> None:
    from lightning.pytorch import LightningModule, Trainer

    from runwatch_hooks.adapters.lightning import RunwatchCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
            loss: Tensor = self.net(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    trainer = Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATED,
        default_root_dir=folder,
        callbacks=[RunwatchCallback("broken", **_places(folder))],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(Rows(), batch_size=BATCH))
    _leave(module.net, folder)


def accelerate_loop(folder: Path) -> None:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from runwatch_hooks.adapters.accelerate import attach

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    net = Net()
    model, optimizer, loader = cast(Any, accelerator).prepare(
        net, torch.optim.SGD(net.parameters(), lr=1e-3), DataLoader(Rows(), batch_size=BATCH)
    )
    with attach(accelerator, model, optimizer, run="broken", **_places(folder)) as batches:
        for batch in batches.watch.batches(loader):
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            batches.step(loss)
    _leave(net, folder)


PROGRAMS: dict[str, Callable[[Path], None]] = {
    "hf_trainer": hf_trainer,
    "lightning_module": lightning_module,
    "accelerate_loop": accelerate_loop,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]))
