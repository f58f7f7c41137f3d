"""One stage of the example's pipeline, given orders (`ordered`).

torchrun --nproc-per-node 2 pipeline_rank.py FOLDER
"""

import importlib
import sys
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from tests.hooks.ranks.leaving import leave
from tests.hooks.ranks.ordered import follow_orders, write
from torch import Tensor

from runwatch_hooks.attaching.wiring import Objects

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "pipeline.py"


def main() -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, str(EXAMPLE.parent))
    example: Any = importlib.import_module(EXAMPLE.stem)
    dist.init_process_group("gloo")
    model, schedule = example.make_stage()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(step: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = example.train_one(schedule, torch.Generator().manual_seed(step))
        optimizer.step()
        return loss

    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    write(follow_orders(objects, train), Path(sys.argv[1]))
    leave()


if __name__ == "__main__":
    main()
