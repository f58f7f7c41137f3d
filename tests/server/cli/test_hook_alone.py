"""What `runwatch` does where only the trainer's side is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ALONE = """\
import sys
sys.modules["typer"] = None
from runwatch_server.cli import main
sys.argv = ["runwatch", *sys.argv[1:]]
main()
"""


def runwatch(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", ALONE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_spools_are_brought_in(tmp_path: Path) -> None:
    done = runwatch("sync", str(tmp_path), "--url", "http://127.0.0.1:9", folder=tmp_path)

    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is left to bring in" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (("doctor", "--help"), "python -m runwatch_hooks.doctor"),
        (("replay", "--help"), "--program MODULE:FUNCTION"),
    ],
)
def test_what_is_the_trainers_own_is_there(
    arguments: tuple[str, ...], usage: str, tmp_path: Path
) -> None:
    done = runwatch(*arguments, folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert usage in done.stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("runs",)])
def test_the_others_say_what_is_missing_and_what_there_is(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = runwatch(*arguments, folder=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "typer is missing" in done.stderr
    assert "pip install '/path/to/checkout[server]'" in done.stderr
    assert "`runwatch sync`, `runwatch doctor`, `runwatch replay`" in done.stderr
