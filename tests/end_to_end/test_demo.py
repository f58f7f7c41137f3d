"""`runwatch demo` as a person runs it: a real service, three real trainings."""

import subprocess
import sys

import msgspec
import pytest


class Line(msgspec.Struct, forbid_unknown_fields=True):
    fault_step: int
    detected_step: int
    rolled_back_to: int
    final_loss: dict[str, float]
    url: str


@pytest.mark.slow
def test_the_demo_breaks_a_run_and_saves_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runwatch_server.cli", "demo", "--json"],
        capture_output=True,
        check=False,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    line = msgspec.json.decode(ended.stdout, type=Line)
    assert ended.stdout.count(b"\n") == 1
    assert line.fault_step == 500
    assert 500 <= line.detected_step <= 503
    assert line.rolled_back_to <= 500
    # The fault is no part of the data: trained again, each step gives the clean run's very loss.
    assert line.final_loss["protected"] == line.final_loss["clean"]
    assert line.final_loss["unprotected"] >= 1.2 * line.final_loss["clean"]


@pytest.mark.slow
def test_a_folder_in_use_is_left_alone() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "runwatch_server.cli", "demo", "--dir", "/"],
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 2
    assert b"wanted a new or empty folder" in ended.stdout
