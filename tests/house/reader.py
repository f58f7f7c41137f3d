"""What a reader of the documents has at hand: a model, a loader, a function that trains one step.

The documents' Python is fragments around such things; here they are small and real. A comment
`<!-- the reader has: NAME -->` before a block names the function of this module that gives them;
where there is none, it is `torch_loop`. Frameworks are imported by those pages alone: they take
seconds.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.house.documents import ROOT
from tests.house.logs import write_logs

NUM_STEPS: Final = 12
_MODEL: Final = "import torch\n\n\ndef make():\n    return torch.nn.Linear(64, 64)\n"
_TRAINING: Final = """\
import torch

from runwatch_hooks import attach

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
watch = attach(model, optimizer, run="mine")
for _ in range(60):
    inputs = torch.randn(4, 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watch.step(loss)
watch.finish()
"""
Names = dict[str, Any]


class CtrlC(KeyboardInterrupt):
    """A reader who has seen enough: the documents' loops have a hundred thousand steps."""


def torch_loop() -> Names:
    """A loop of one's own: `train_one` takes a batch, or the number of a step."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    steps = iter(range(NUM_STEPS))

    def train_one(_: object) -> torch.Tensor:
        if next(steps, None) is None:
            raise CtrlC
        inputs = torch.randn(4, 8)
        loss: torch.Tensor = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss

    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "scaler": torch.amp.GradScaler("cpu", enabled=False),
        "loader": [torch.zeros(4, 8, dtype=torch.long) for _ in range(NUM_STEPS)],
        "train_one": train_one,
        "step_of_mine": train_one,
    }


def huggingface() -> Names:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

    tokens = torch.arange(8)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1,
            bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(dir="."),
        max_steps=NUM_STEPS,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    data = [{"input_ids": tokens, "labels": tokens}] * 16
    return {"model": model, "arguments": arguments, "data": data}


def lightning() -> Names:
    import torch
    from lightning import LightningModule
    from torch.utils.data import DataLoader

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return torch.as_tensor(self.net(batch).square().mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    rows = [torch.ones(4) for _ in range(NUM_STEPS)]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    settings = {**quiet, "enable_model_summary": False, "accelerator": "cpu"}
    return {"module": Module(), "loader": DataLoader(rows), "quiet": settings}  # type: ignore[arg-type]


def accelerate() -> Names:
    import torch
    from accelerate import Accelerator  # type: ignore[import-untyped]

    accelerator: Any = Accelerator(cpu=True)
    plain = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.01))

    def train_one(inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = (model(inputs) - wanted).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    pairs = [(torch.ones(2, 4), torch.ones(2, 1))] * NUM_STEPS
    names = {"accelerator": accelerator, "model": model, "optimizer": optimizer}
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer.optimizer)
    return names | {"scheduler": scheduler, "loader": pairs, "train_one": train_one}


def without_torch() -> Names:
    weights = np.ones(4)

    def train_one(step: int) -> tuple[float, dict[str, Any]]:
        if step >= NUM_STEPS:
            raise CtrlC
        return 1.0 / (1 + step), {"weights": weights / (1 + step)}

    return {"train_one": train_one}


def files(folder: Path) -> None:
    """What lies in the folder in which the reader works."""
    write_logs(folder)
    (folder / "etc").mkdir()
    (folder / "mymodel.py").write_text(_MODEL, encoding="utf-8")
    (folder / "train.py").write_text(_TRAINING, encoding="utf-8")


def checkout(folder: Path) -> None:
    """The project's own files around it, as a checkout has them after `make install`."""
    files = ("Makefile", "pyproject.toml", "constraints.txt", "hatch_build.py")
    for name in (*files, "watchdog", "hooks", "tests", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":  # newer here than all that is installed from
            (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".installed").touch()
