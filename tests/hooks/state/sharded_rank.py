"""One rank that trains a sharded model, goes back, and says whether it trained the same again."""

from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.state import CheckpointStore, TrainingState


@dataclass(frozen=True)
class Findings:
    """Each is whether it was so."""

    shards_are_plain: bool
    replays_from_memory: bool
    keeps_addresses: bool
    replays_from_disk: bool
    replays_in_a_new_process: bool
    """Over objects that have not taken a step yet."""


class Sharded:
    """A model under FSDP2 whose parts are uneven: 7 rows and 3 on 4 ranks, one of them empty."""

    def __init__(self, mesh: DeviceMesh) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(5, 7), nn.Dropout(0.1), nn.BatchNorm1d(7), nn.Linear(7, 3)
        )
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.state = TrainingState({"": self.model}, [self.optimizer])

    def train(self, steps: int) -> list[str]:
        """The losses, to the bit."""
        losses: list[str] = []
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(4, 5)).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item().hex())
        return losses

    def addresses(self) -> list[int]:
        return [local_of(parameter).data_ptr() for parameter in self.model.parameters()]


def be(rank: int, port: int, folder: Path, line: Connection) -> None:
    """The process's main function."""
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    run = Sharded(mesh)
    torch.manual_seed(rank)
    run.train(3)
    captured, addresses = run.state.capture(), run.addresses()
    first = run.train(4)

    run.state.restore(captured.tree)
    from_memory = run.train(4)
    kept = run.addresses() == addresses
    checkpoints = CheckpointStore(folder / str(rank))
    loaded = checkpoints.load(checkpoints.save(2, captured, {}))
    run.state.restore(loaded.tree)
    from_disk = run.train(4)
    fresh = Sharded(mesh)
    fresh.state.restore(loaded.tree)
    line.send(
        asdict(
            Findings(
                _are_plain(captured.tree),
                replays_from_memory=from_memory == first,
                keeps_addresses=kept,
                replays_from_disk=from_disk == first,
                replays_in_a_new_process=fresh.train(4) == first,
            )
        )
    )
    line.recv()


def _are_plain(tree: object) -> bool:
    if isinstance(tree, dict):
        return all(_are_plain(item) for item in cast("dict[object, object]", tree).values())
    return not isinstance(tree, torch.Tensor) or type(tree) is torch.Tensor
