"""What a rank takes up lies beside what other runs saved, of the same step and as many ranks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks.ranks import RankStore, World
from runwatch_hooks.ranks.agreement import Meeting
from runwatch_hooks.state import RankCheckpoints, TrainingState

STEP = 4


@pytest.fixture
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def linear(number: float) -> nn.Linear:
    module = nn.Linear(1, 1)
    torch.nn.init.constant_(module.weight, number)
    return module


def replica(number: float) -> nn.Module:
    return DistributedDataParallel(linear(number))


def under_one_name(number: float) -> nn.Module:
    """As a single process has it that is to be taken up by replicas."""
    return nn.ModuleDict({"module": linear(number)})


def store(
    folder: Path, module: nn.Module, *, run_id: str, rank: int = 0, world_size: int = 2
) -> RankCheckpoints:
    state = TrainingState({"model": module}, [])
    return RankCheckpoints(folder, World(rank=rank, world_size=world_size), state, run_id=run_id)


def save(folder: Path, module: nn.Module, *, run_id: str, world_size: int = 2) -> None:
    """By each rank, the state after the same step."""
    captured = TrainingState({"model": module}, []).capture()
    for rank in range(world_size):
        held = store(folder, module, run_id=run_id, rank=rank, world_size=world_size)
        held.save(STEP, captured, {})


def taken_up(folder: Path, module: nn.Module, *, run_id: str, rank: int) -> float:
    """The weight that a rank goes on with."""
    held = store(folder, module, run_id=run_id, rank=rank)
    loaded = held.load_newest(lambda facts: facts.step == STEP)
    assert loaded is not None
    TrainingState({"model": module}, []).restore(loaded.tree)
    return next(module.parameters()).item()


@pytest.mark.usefixtures("_group")
def test_replicas_take_up_their_own_run_s_weights_beside_a_newer_run_s(tmp_path: Path) -> None:
    save(tmp_path, replica(1), run_id="A")
    save(tmp_path, replica(2), run_id="B")

    assert [taken_up(tmp_path, replica(0), run_id="A", rank=rank) for rank in range(2)] == [1, 1]


@pytest.mark.usefixtures("_group")
def test_replicas_take_up_their_own_run_s_weights_beside_a_single_process_s(
    tmp_path: Path,
) -> None:
    save(tmp_path, replica(1), run_id="A")
    save(tmp_path, under_one_name(2), run_id="B", world_size=1)

    assert [taken_up(tmp_path, replica(0), run_id="A", rank=rank) for rank in range(2)] == [1, 1]


@pytest.mark.usefixtures("_group")
def test_one_process_s_checkpoint_is_taken_up_by_replicas_beside_another_run_of_theirs(
    tmp_path: Path,
) -> None:
    save(tmp_path, under_one_name(1), run_id="A", world_size=1)
    save(tmp_path, replica(2), run_id="B")

    assert [taken_up(tmp_path, replica(0), run_id="A", rank=rank) for rank in range(2)] == [1, 1]


def test_all_ranks_know_other_runs_by_rank_0_s_order_of_saving(tmp_path: Path) -> None:
    """Each folder counts by itself: in rank 1's the run of one process has nothing."""
    for _ in range(2):
        save(tmp_path, linear(1), run_id="A", world_size=1)
    save(tmp_path, linear(2), run_id="B")

    ranks = [store(tmp_path, linear(0), run_id="C", rank=rank) for rank in range(2)]

    assert [one.loadable()[-1].facts.run_id for one in ranks] == ["B", "B"]


@pytest.mark.parametrize(
    ("names", "is_one"),
    [(["A", "A"], True), (["A", "B"], False), (["A", None], False), ([None, None], False)],
)
def test_ranks_that_took_one_run_s_state_hear_so_of_one_another(
    names: list[str | None], is_one: bool
) -> None:
    shared = RankStore(HashStore())
    ranks = [Meeting(shared, rank=rank, world_size=2) for rank in range(2)]

    with ThreadPoolExecutor() as pool:
        heard = list(pool.map(Meeting.all_took_one, ranks, names))

    assert heard == [is_one, is_one]
