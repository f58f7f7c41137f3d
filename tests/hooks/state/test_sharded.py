"""Four ranks that hold a model in parts: each goes back by its own, and all train on exactly."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hooks.processes import Process
from tests.hooks.ranks.agreement.member import host
from tests.hooks.state.sharded_rank import Findings, be

pytestmark = pytest.mark.heavy


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[Process]]:
    store = Process(host)
    port = store.recv()
    started = [Process(be, rank, port, tmp_path) for rank in range(4)]
    yield started
    for process in (*started, store):
        process.end()


def test_each_rank_puts_its_own_shards_back_and_the_replay_is_exact(ranks: list[Process]) -> None:
    found = [rank.recv() for rank in ranks]

    assert found == [dict.fromkeys(Findings.__dataclass_fields__, True)] * 4
