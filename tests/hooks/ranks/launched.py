"""Programs of several ranks under torchrun, and what each of two leaves as `RANK.json`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
NUM_RANKS = 2


def run_ranks(
    program: Path,
    *arguments: str,
    num_ranks: int = NUM_RANKS,
    folder: Path | None = None,
    **environment: str,
) -> None:
    """Runs a program to its end, which must be a good one; `folder` is where it is started."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks))
    done = subprocess.run(
        [sys.executable, *launcher, str(program), *arguments],
        env=os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"} | environment,
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]


def seen_by_ranks(program: Path, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Runs a program, which is given the folder first, to its end; what each of the ranks saw."""
    run_ranks(program, str(folder), *arguments)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(NUM_RANKS)]
