"""Programs of two ranks under torchrun, each of which leaves what it saw as `RANK.json`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
NUM_RANKS = 2


def seen_by_ranks(program: Path, folder: Path) -> list[dict[str, Any]]:
    """Runs a program, which is given the folder, to its end; what each of the ranks saw."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(NUM_RANKS))
    done = subprocess.run(
        [sys.executable, *launcher, str(program), str(folder)],
        env=os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(NUM_RANKS)]
