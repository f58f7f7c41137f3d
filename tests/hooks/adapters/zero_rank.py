"""One rank under DeepSpeed's ZeRO that is given orders (`ordered`), and then begins anew from disk.

torchrun --nproc-per-node 2 zero_rank.py FOLDER STAGE
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.hooks.adapters.under_deepspeed import load_example
from tests.hooks.ranks.leaving import leave
from tests.hooks.ranks.ordered import follow_orders, write
from torch import Tensor

from runwatch_hooks.attaching.wiring import Objects, extra_of, optimizers_of, zero_optimizers_of
from runwatch_hooks.state import CheckpointStore, TrainingState


class Training:
    """The example's, at a stage; the batches of a step are the same whenever that is trained."""

    def __init__(self, example: Any, stage: int) -> None:
        self._example = example
        settings = {"zero_optimization": {"stage": stage}}
        model, self._engine, zero = example.make_engine(settings)
        self.objects = Objects(
            modules={"": model},
            optimizers=optimizers_of(zero),
            extra=extra_of(None, None, zero_optimizers_of(zero)),
        )
        self.state = TrainingState(
            self.objects.modules, self.objects.optimizers, extra=self.objects.extra
        )

    def train(self, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        count = self._example.ACCUMULATED
        losses = [self._example.train_one(self._engine, generator) for _ in range(count)]
        return torch.stack(losses).mean()

    def train_on(self) -> list[str]:
        """The losses of some steps, to the bit."""
        return [float(self.train(step)).hex() for step in range(4)]


def main() -> None:
    folder, stage = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    example = load_example()
    training = Training(example, stage)
    did = follow_orders(training.objects, training.train)
    checkpoints = CheckpointStore(folder / f"rank-{dist.get_rank()}")
    saved = checkpoints.save(0, training.state.capture(), {})
    went_on = training.train_on()
    fresh = Training(example, stage)
    fresh.state.restore(checkpoints.load(saved).tree)
    did["resumes_exactly"] = fresh.train_on() == went_on
    write(did, folder)
    leave()


if __name__ == "__main__":
    main()
