"""Other tools as they watch the same training: every step, every tensor, at their own cost.

TensorBoard, W&B and MLflow are given the norms that the fused way computes (`Foreach`), as a user
would hand them over; `wandb.watch` measures for itself, by histograms. None of them is required: a
tool that is not installed is left out, and said to be.
"""

import contextlib
import logging
from collections.abc import Callable, Generator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.hook_variants import Bare, Foreach, Variant
from torch import Tensor, nn


class TensorBoardScalars(Foreach):
    """A scalar for each norm."""

    def __init__(self, model: nn.Module, batches: list[Tensor], folder: Path) -> None:
        super().__init__(model, batches)
        self._writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def after_optimizer(self, loss: Tensor) -> None:
        for number, norm in enumerate(self.seen):
            self._writer.add_scalar(f"norm/{number}", norm, self._step)

    def close(self) -> None:
        self._writer.close()


class WandbLog(Foreach):
    """A dictionary of all norms, to an offline run."""

    def __init__(self, model: nn.Module, batches: list[Tensor], folder: Path) -> None:
        super().__init__(model, batches)
        self._run = _offline_wandb_run(folder)

    def after_optimizer(self, loss: Tensor) -> None:
        self._run.log({f"norm/{number}": norm for number, norm in enumerate(self.seen)})

    def close(self) -> None:
        self._run.finish()


class WandbWatch(Bare):
    """`watch` at its default, histograms of gradients, but at each step instead of every 1000th.

    Its hooks speak to the run that is the process's own."""

    def __init__(self, model: nn.Module, batches: list[Tensor], folder: Path) -> None:
        super().__init__(model, batches)
        self._run = _offline_wandb_run(folder)
        wandb: Any = import_module("wandb")
        wandb.run = self._run
        self._run.watch(self.model, log="gradients", log_freq=1)

    def after_optimizer(self, loss: Tensor) -> None:
        self._run.log({"loss": loss.item()})

    def close(self) -> None:
        self._run.finish()


class MlflowBatches(Foreach):
    """A batch of all norms each step, to SQLite, by MLflow's own thread (`synchronous=False`)."""

    def __init__(self, model: nn.Module, batches: list[Tensor], folder: Path) -> None:
        super().__init__(model, batches)
        folder.mkdir()
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._metric = import_module("mlflow.entities").Metric
        self._client = import_module("mlflow.tracking").MlflowClient(f"sqlite:///{folder}/runs.db")
        self._run_id: str = self._client.create_run("0").info.run_id

    def after_optimizer(self, loss: Tensor) -> None:
        metrics = [
            self._metric(f"norm-{number}", norm, 0, self._step)
            for number, norm in enumerate(self.seen)
        ]
        self._client.log_batch(self._run_id, metrics, synchronous=False)

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


Peer = TensorBoardScalars | WandbLog | WandbWatch | MlflowBatches

PEERS: Final[dict[str, tuple[str, Callable[[nn.Module, list[Tensor], Path], Peer]]]] = {
    "foreach norms as TensorBoard scalars": ("tensorboard", TensorBoardScalars),
    "foreach norms to `wandb.log`, offline": ("wandb", WandbLog),
    "`wandb.watch`, histograms of gradients": ("wandb", WandbWatch),
    "foreach norms to MLflow, asynchronous": ("mlflow", MlflowBatches),
}
"""By their names in the table: the package each needs, and how it is made."""


@contextlib.contextmanager
def peers(model: nn.Module, batches: list[Tensor], folder: Path) -> Generator[dict[str, Variant]]:
    """Those that are installed here."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Variant] = {}
        for name, (package, make) in PEERS.items():
            if find_spec(package) is None:
                print(f"{name}: left out, {package} is not installed")
                continue
            peer = make(model, batches, folder / f"peer-{len(found)}")
            stack.callback(peer.close)
            found[name] = peer
        yield found


def _offline_wandb_run(folder: Path) -> Any:
    """A run of its own (a process may hold several), without what W&B watches of the machine."""
    folder.mkdir()
    wandb = import_module("wandb")
    quiet = wandb.Settings(
        console="off", x_disable_stats=True, x_disable_meta=True, save_code=False, silent=True
    )
    return wandb.init(
        mode="offline", dir=str(folder), project="bench", settings=quiet, reinit="create_new"
    )
