"""What our threads do while the interpreter goes down leaves the training's exit status alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.forking import TRAINER, run

pytestmark = pytest.mark.slow  # processes in which torch is imported

STORE_IN_USE = """
import threading
from torch.distributed import HashStore, PrefixStore
from runwatch_hooks.ranks import StoreLostError
from runwatch_hooks.ranks.team import RankStore

store = RankStore(PrefixStore("test", HashStore()))
begun = threading.Event()

def ask() -> None:
    try:
        while True:
            store.put("key", b"value")
            begun.set()
    except StoreLostError:
        pass

for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
begun.wait()
"""

CHECKPOINT_BEING_WRITTEN = """
import sys
import threading
from pathlib import Path
import torch
from runwatch_hooks.state.checkpoints import Background

begun = threading.Event()

def write() -> None:
    begun.set()
    values = torch.randn(200, 200)
    for _ in range(500):
        values = torch.tanh(values @ values)
    torch.save(values, sys.argv[1])

Background().submit(write)
begun.wait()
"""


@pytest.mark.parametrize("last_line", ["", "sys.exit(3)", "raise KeyError('their own')"])
def test_a_checkpoint_under_way_is_written_to_its_end(tmp_path: Path, last_line: str) -> None:
    written = tmp_path / "checkpoint.pt"

    done = run(TRAINER, CHECKPOINT_BEING_WRITTEN + last_line, [str(written)])

    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(last_line, 1), done.stderr
    assert written.exists()


def test_threads_that_ask_the_ranks_store_do_not_abort_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORE_IN_USE],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
