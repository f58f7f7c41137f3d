"""One of several ranks of a guarded training under DDP, where one rank's data are broken.

torchrun --nproc-per-node 2 guarded_rank.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from tests.hooks.ranks.leaving import leave
from tests.hooks.recorder import RecordingLine
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.guard import check_guardable
from runwatch_hooks.guard.norm_past import WARM_UP
from runwatch_hooks.ranks import SharedAttempt, alone
from runwatch_hooks.settings.options import Guarding, Options

BAD_STEP, BAD_RANK, STEPS = 2, 1, 4
OUTLIER = 1e5
"""By how much the broken rank's first number is too large, where it is finite."""


def trained(
    *, fused: bool, guard: Guarding = True, bad: float = torch.nan, bad_step: int = BAD_STEP
) -> dict[str, object]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 3))
    optimizer = AdamW(model.parameters(), lr=0.1, fused=fused)
    line = RecordingLine()
    team = alone(SharedAttempt("0" * 26, "0" * 26, 0.0))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(guard=guard), line.open, team)
    weights: list[list[float]] = []
    torch.manual_seed(dist.get_rank())
    for step in range(bad_step + STEPS - BAD_STEP):
        inputs = torch.randn(5, 4)
        if (step, dist.get_rank()) == (bad_step, BAD_RANK):
            inputs[0, 0] = bad
        optimizer.zero_grad()
        loss: Tensor = model(inputs).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)
        weight: Tensor = next(model.parameters())
        weights.append([float(one) for one in weight.detach().flatten()])
    watch.finish()
    metrics = ("guarded_steps", "guarded_outliers")
    return {"weights": weights[-STEPS:], **{name: line.metric(name)[-STEPS:] for name in metrics}}


def outlier(*, fused: bool) -> dict[str, object]:
    """The same, once the norms are learned, of numbers that are finite and far too large."""
    return trained(fused=fused, guard="outliers", bad=OUTLIER, bad_step=WARM_UP + BAD_STEP)


def refusal() -> str:
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    try:
        check_guardable([AdamW(model.parameters(), fused=True)])
    except AttachError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {
        "plain": trained(fused=False),
        "fused": trained(fused=True),
        "outlier, plain": outlier(fused=False),
        "outlier, fused": outlier(fused=True),
        "sharded": refusal(),
    }
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
