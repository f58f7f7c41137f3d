"""The hook holds no more after many steps than after some."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from tests.waiting import LONGEST_S

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_threads_files_and_memory_stay_as_they_were(tmp_path: Path) -> None:
    with serving(StubService()) as service:
        # In a process of its own: the stub's threads, connections and frames are not the hook's.
        options = ("--steps", "2000", "--readings", "2", "--allowed-mib", "16")
        told = ("--url", service.url, "--token", TOKEN)
        trainer = subprocess.run(
            [sys.executable, "-m", "benchmarks.hook_flat", *options, *told],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            text=True,
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )

    assert trainer.returncode == 0, trainer.stdout + trainer.stderr
    assert "grown: nothing" in trainer.stdout
    assert service.steps[-1] == 1999
