"""One of several ranks of a guarded training under DDP, where one rank's data are broken.

torchrun --nproc-per-node 2 guarded_rank.py FOLDER
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from tests.hooks.measure.recorder import RecordingLine
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from runwatch_hooks.building import build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.guard import check_guardable
from runwatch_hooks.objects import Objects
from runwatch_hooks.options import Options
from runwatch_hooks.ranks import SharedAttempt, alone

BAD_STEP, BAD_RANK, STEPS = 2, 1, 4


def trained(*, fused: bool) -> dict[str, object]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 3))
    optimizer = AdamW(model.parameters(), lr=0.1, fused=fused)
    line = RecordingLine()
    team = alone(SharedAttempt("0" * 26, "0" * 26, 0.0))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(guard=True), line.open, team)
    weights: list[list[float]] = []
    torch.manual_seed(dist.get_rank())
    for step in range(STEPS):
        inputs = torch.randn(5, 4)
        if (step, dist.get_rank()) == (BAD_STEP, BAD_RANK):
            inputs[0, 0] = torch.nan
        optimizer.zero_grad()
        loss: Tensor = model(inputs).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)
        weight: Tensor = next(model.parameters())
        weights.append([float(one) for one in weight.detach().flatten()])
    watch.finish()
    return {"weights": weights, "guarded_steps": line.metric("guarded_steps")}


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
    results = {"plain": trained(fused=False), "fused": trained(fused=True), "sharded": refusal()}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
