"""Commands on a service's machine, where PyTorch need not be installed (`make test-lowest`)."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="PyTorch is installed"
)


def runwatch(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "runwatch_server.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["demo"], ["replay", "bundle", "--program", "a:b"]])
def test_what_wants_it_says_so(arguments: list[str], tmp_path: Path) -> None:
    done = runwatch(*arguments, folder=tmp_path)

    assert done.returncode == 2
    assert "PyTorch" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_that_it_is_missing_is_nothing_wrong(tmp_path: Path) -> None:
    done = runwatch("doctor", "--json", folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    found = {one["name"]: one["verdict"] for one in json.loads(done.stdout)["findings"]}
    assert found["torch"] == "note"
