"""`runwatch sync`: another program's usage, handed on."""

import subprocess
import sys


def test_help_is_that_of_the_program_that_does_the_work() -> None:
    command = [sys.executable, "-m", "runwatch_server.cli", "sync", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "--patience SECONDS" in shown
    assert "DIR [DIR ...]" in shown
