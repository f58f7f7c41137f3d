"""A job that some ranks saved goes on with another number of them, from the same bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.hooks.processes import Process
from tests.hooks.ranks.agreement.member import host
from tests.hooks.state.regrouped_rank import STEPS, be

pytestmark = pytest.mark.heavy

Told = tuple[int | None, str, str]


@pytest.fixture
def port() -> Iterator[int]:
    store = Process(host)
    yield cast(int, store.recv())
    store.end()


def train(world_size: int, spread: str, port: int, folder: Path) -> list[Told]:
    ranks = [Process(be, rank, world_size, port, spread, folder) for rank in range(world_size)]
    try:
        return [cast(Told, rank.recv()) for rank in ranks]
    finally:
        for rank in ranks:
            rank.end()


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([(2, "ddp"), (3, "ddp"), (1, "ddp")], id="replicas"),
        pytest.param(
            [(4, "fsdp_over_tensor_parallel"), (3, "fsdp"), (1, "alone"), (4, "fsdp")],
            id="shards",
        ),
    ],
)
def test_each_job_takes_up_what_the_one_before_saved(
    jobs: list[tuple[int, str]], port: int, tmp_path: Path
) -> None:
    told = [train(*job, port, tmp_path) for job in jobs]

    begun = [{one[:2] for one in ranks} for ranks in told[1:]]
    assert begun == [
        {((index + 1) * STEPS, before[0][2])} for index, before in enumerate(told[:-1])
    ]
