"""One of two ranks under DDP, whose first reads less of its steps than the budget would have.

torchrun --nproc-per-node 2 thinned_rank.py FOLDER
"""

import json
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from tests.hooks.ranks.leaving import leave
from tests.hooks.recorder import RecordingLine
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from runwatch.vocabulary import RunId
from runwatch_hooks import attach
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.errors import AttachError
from runwatch_hooks.governor.ladder import LADDER
from runwatch_hooks.ranks import SharedAttempt, find_world, join_team
from runwatch_hooks.settings.environment import read_environment
from runwatch_hooks.settings.options import Options

CLIMB: Final = 32 * len(LADDER)
DEADLINE_S: Final = 120.0


def trained() -> dict[str, object]:
    """On every rank until each has heard how it stands beside the other."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    line = RecordingLine()
    world = find_world(read_environment())
    proposed = SharedAttempt(RunId("0" * 26), "0" * 26, time.time())
    team = join_team(world, proposed, is_run_given=True)
    assert team is not None
    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(allow=(), max_overhead=1e-9), line.open, team)
    torch.manual_seed(dist.get_rank())
    started = time.monotonic()
    num_steps, is_over = 0, torch.zeros(1)
    while num_steps < CLIMB or not is_over.item():
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(5, 4)).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)
        num_steps += 1
        is_late = time.monotonic() - started > DEADLINE_S
        is_over = torch.tensor([float(bool(line.metric("replica_drift")) or is_late)])
        dist.all_reduce(is_over, dist.ReduceOp.MIN)
    watch.finish()
    return {
        "num_steps": num_steps,
        "num_faults": watch.num_faults,
        "weights": [one.tolist() for one in model.parameters()],
        "intervals": line.metric("sampling_interval"),
        "losses": line.metric("loss"),
        "num_read": len(line.metric("nonfinite")),
        "drift": line.metric("replica_drift"),
        "kinds": line.kinds(),
    }


def refusal() -> str:
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    try:
        attach(model, torch.optim.SGD(model.parameters()), run="sharded", max_overhead=0.005)
    except AttachError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {**trained(), "refusal": refusal()}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
