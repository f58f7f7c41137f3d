"""One of two ranks under DDP whose gradients are not reduced.

torchrun --nproc-per-node 2 unreduced_rank.py FOLDER
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import torch
import torch.distributed as dist
from tests.hooks.ranks.leaving import leave
from tests.hooks.recorder import RecordingLine
from tests.waiting import LONGEST_S
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.ranks import SharedAttempt, find_world, join_team
from runwatch_hooks.settings.environment import read_environment
from runwatch_hooks.settings.options import Options

Wrapped = DistributedDataParallel
FEWEST_STEPS: Final = 66


def past_the_wrapper(model: Wrapped) -> Callable[..., Any]:
    return cast("nn.Module", model.module)


def converted(model: Wrapped) -> Callable[..., Any]:
    model.double()  # its parameters' hooks are lost
    return model.float()


def as_it_should_be(model: Wrapped) -> Callable[..., Any]:
    return model


WAYS: Final = (past_the_wrapper, converted, as_it_should_be)


def trained(way: Callable[[Wrapped], Callable[..., Any]]) -> dict[str, object]:
    """On every rank until rank 1 has heard how it stands."""
    torch.manual_seed(0)
    model = Wrapped(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    forward = way(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    line = RecordingLine()
    world = find_world(read_environment())
    proposed = SharedAttempt(RunId("0" * 26), "0" * 26, time.time())
    team = join_team(world, proposed, is_run_given=True)
    assert team is not None
    objects = Objects(modules={"": model}, optimizers=(optimizer,))
    watch = build_watch(objects, Options(allow=()), line.open, team)
    torch.manual_seed(dist.get_rank())
    started, num_steps = time.monotonic(), 0
    is_over = torch.zeros(1)
    while num_steps < FEWEST_STEPS or not is_over.item():
        optimizer.zero_grad()
        loss: Tensor = forward(torch.randn(5, 4)).square().mean()
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)
        num_steps += 1
        is_late = time.monotonic() - started > LONGEST_S
        is_over = torch.tensor([float(bool(line.metric("replica_drift")) or is_late)])
        dist.all_reduce(is_over, dist.ReduceOp.MIN)
    watch.finish()
    return {
        "drift": line.metric("replica_drift"),
        "events": [event.detail for event in line.events if "what" in event.detail],
        "num_faults": watch.num_faults,
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {way.__name__: trained(way) for way in WAYS}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
