"""Programs of several ranks, and what each of two leaves as `RANK.json`."""

import json
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

from tests.forking import TRAINER, Forked, fork
from tests.waiting import LONGEST_S, until
from torch._C._distributed_c10d import TCPStore

NUM_RANKS = 2


def run_ranks(
    program: Path,
    *arguments: str,
    num_ranks: int = NUM_RANKS,
    folder: Path | None = None,
    **environment: str,
) -> None:
    """Runs a program to its end, which must be a good one; `folder` is where it is started. Its
    processes are forked, in the environment that torchrun gives, and with a store that outlives
    them, as torchrun's does."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": str(uuid.uuid4()),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with tempfile.TemporaryDirectory() as written:
        output = Path(written) / "output.txt"
        ranks = [
            fork(
                TRAINER,
                str(program),
                arguments,
                output=output,
                environment=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | environment,
                folder=folder,
            )
            for rank in range(num_ranks)
        ]
        try:
            until(lambda: _are_over(ranks), said=output.read_text)
            assert [rank.returncode for rank in ranks] == [0] * num_ranks, output.read_text()[
                -4000:
            ]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait(LONGEST_S)


def _are_over(ranks: list[Forked]) -> bool:
    """All have ended, or one has and not well: the others would wait for it."""
    codes = [rank.poll() for rank in ranks]
    return None not in codes or any(codes)


def seen_by_ranks(program: Path, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Runs a program, which is given the folder first, to its end; what each of the ranks saw."""
    run_ranks(program, str(folder), *arguments)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(NUM_RANKS)]
