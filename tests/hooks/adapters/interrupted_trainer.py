"""A Trainer that is interrupted after its first step, and told to train again, as in a notebook.

interrupted_trainer.py FOLDER
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from tests.hooks.adapters.line_fit import Net, Rows
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from runwatch_hooks.adapters.huggingface import RunwatchCallback


class Same(Trainer):
    """The same batch each time, to a model that learns nothing: each step has the same loss."""

    def get_train_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        return DataLoader(Rows(), batch_size=2)


class Interruption(TrainerCallback):
    is_due = True

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt


def main(folder: Path) -> None:
    trainer = Same(
        Net(),
        TrainingArguments(
            output_dir=str(folder / "out"),
            max_steps=2,
            learning_rate=0.0,
            gradient_accumulation_steps=2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Rows(),
        callbacks=[RunwatchCallback("interrupted", spool=folder / "spool"), Interruption()],
    )
    with suppress(KeyboardInterrupt):
        trainer.train()
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    main(Path(sys.argv[1]))
