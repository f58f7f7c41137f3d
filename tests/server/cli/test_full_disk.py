"""Output that has no room is told in a line, and by the exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@pytest.mark.parametrize("arguments", [["--help"], ["rules", "--help"], ["doctor", "--json"]])
def test_a_full_disk_is_told_without_a_traceback(arguments: list[str]) -> None:
    with FULL.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "runwatch_server.cli", *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (2, "runwatch: No space left on device\n")
