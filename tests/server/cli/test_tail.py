"""`runwatch tail`: a run that is followed, on a terminal and in a pipe, and what is refused."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.sender import Sender
from tests.waiting import LONGEST_S
from typer.testing import CliRunner

from runwatch_server.cli.app import app

pytestmark = pytest.mark.slow

TAIL = [sys.executable, "-m", "runwatch_server.cli", "tail"]
LOSSES = [2.0 - step / 100 for step in range(100)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder = tmp_path_factory.mktemp("service")
    with RealService(folder, environment=NOBODY_IS_MISSED) as running:
        yield running


@pytest.fixture
def run(service: RealService) -> Sender:
    """A run of a hundred steps that goes on."""
    sender = Sender.open(service.url, service.admin_key)
    sender.send_until_acknowledged(1, LOSSES, 0)
    return sender


def finish(run: Sender, status: str = "finished") -> None:
    run.json("POST", f"/runs/{run.run_id}/attempts/1/close", {"status": status})


def variables(service: RealService, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "RUNWATCH_URL": service.url,
        "RUNWATCH_TOKEN": service.admin_key,
        **more,
    }


class Following:
    """`tail --json` in a process of its own, line by line."""

    def __init__(self, service: RealService, run_id: str) -> None:
        self.process = subprocess.Popen(
            [*TAIL, run_id, "--json", "--every", "0.1"],
            env=variables(service),
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        """The next one; the process's own end is an end here, too."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, "tail has ended"
        found: dict[str, Any] = json.loads(text)
        return found

    def until(self, is_awaited: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The next line of which this is true."""
        deadline = time.monotonic() + LONGEST_S
        while not is_awaited(found := self.line()):
            assert time.monotonic() < deadline, found
        return found

    def end(self) -> int:
        """Ctrl-C, unless it has ended by itself; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        if not self.process.stdout.closed:
            self.process.stdout.read()  # a line that is on its way still finds its reader
            self.process.stdout.close()
        return self.process.wait(LONGEST_S)


def test_a_pipe_hears_of_alerts_and_of_the_end(service: RealService, run: Sender) -> None:
    following = Following(service, run.run_id)
    try:
        # A run is "starting" until the service's next look at what its ranks do.
        first = following.until(lambda line: line["run"]["state"] == "training")
        assert first["run"]["last_step"] == 99

        run.send_until_acknowledged(2, [float("nan")] * 20, 100)
        look = following.until(lambda line: line.get("alerts"))
        finish(run)
        lines = following.process.communicate(timeout=LONGEST_S)[0].splitlines()
    finally:
        following.end()

    assert look["alerts"][0]["severity"] == "critical"
    last = json.loads(lines[-1]) if lines else look
    assert (last["run"]["state"], last["run"]["last_step"]) == ("finished", 119)
    assert last["latest"]["loss"] == "NaN"
    assert {layer["value"] for layer in last["layers"]} == {"NaN"}
    assert following.process.returncode == 0


def test_a_service_that_was_away_is_found_again(tmp_path: Path) -> None:
    service = RealService(tmp_path, environment=NOBODY_IS_MISSED)
    service.start()
    run = Sender.open(service.url, service.admin_key)
    run.send_until_acknowledged(1, LOSSES, 0)
    following = Following(service, run.run_id)
    try:
        assert "run" in following.line()
        service.kill()
        following.until(lambda line: "error" in line)
        service.start()
        following.until(lambda line: "run" in line)
    finally:
        code = following.end()
        service.stop()

    assert code == 130


def test_a_terminal_shows_curves_without_colour_and_ctrl_c_ends_it(
    service: RealService, run: Sender
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TAIL, run.run_id],
        env=variables(service, NO_COLOR="1", TERM="xterm", COLUMNS="120", LINES="40"),
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    shown = read_until(ours, "Ctrl-C leaves")
    process.send_signal(signal.SIGINT)
    code = process.wait(LONGEST_S)
    os.close(ours)

    assert code == 130, shown
    assert "a run" in shown
    assert "█" in shown
    assert "no alert has fired" in shown
    assert "\x1b[32m" not in shown
    assert "Traceback" not in shown


def read_until(descriptor: int, words: str) -> str:
    got = b""
    deadline = time.monotonic() + LONGEST_S
    while words.encode() not in got and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 1.0)[0]:
            got += os.read(descriptor, 65536)
    return got.decode("utf-8", "replace")


def asked(service: RealService, *arguments: str, **more: str) -> tuple[int, str]:
    """Exit code, and all that was said."""
    answer = CliRunner().invoke(app, ["tail", *arguments], env=variables(service, **more))
    return answer.exit_code, " ".join(answer.output.split())


def test_a_run_that_is_over_is_shown_once_and_its_end_is_the_code(
    service: RealService, run: Sender
) -> None:
    finish(run, "failed")

    code, said = asked(service, run.run_id)

    assert code == 1
    assert "failed step 99 loss 1.01" in said


def test_why_a_run_ended_is_told_with_its_end(service: RealService, run: Sender) -> None:
    close = {"status": "failed", "reason": "OSError: shard 3 is truncated"}
    run.json("POST", f"/runs/{run.run_id}/attempts/1/close", close)

    assert "failed: OSError: shard 3 is truncated step 99" in asked(service, run.run_id)[1]


def test_what_was_done_is_still_told_when_it_is_done(service: RealService, run: Sender) -> None:
    order = {"action": {"kind": "rollback", "before_step": 50}}
    command = service.ask("POST", f"/runs/{run.run_id}/commands", order)
    service.ask("POST", f"/commands/{command['id']}/cancel")

    _, said = asked(service, run.run_id, "--once")

    assert f"command rollback, before step 50: cancelled ({command['id']})" in said


def test_a_run_is_found_by_its_name(service: RealService, run: Sender) -> None:
    code, said = asked(service, "a run", "--once", "--json")

    assert code == 0
    assert json.loads(said)["run"]["name"] == "a run"
    assert run.run_id <= json.loads(said)["run"]["id"]


def test_a_run_is_found_by_the_beginning_of_its_id_if_no_other_begins_so(
    service: RealService, run: Sender
) -> None:
    Sender.open(service.url, service.admin_key)
    code, said = asked(service, run.run_id[:25].lower(), "--once", "--json")
    several = asked(service, run.run_id[:6])

    assert code == 0
    assert json.loads(said)["run"]["id"] == run.run_id
    assert several[0] == 2
    assert f"runs whose ids begin with '{run.run_id[:6]}': " in several[1]


def test_mistakes_are_told_in_a_sentence(service: RealService, run: Sender) -> None:
    unknown = asked(service, "01M7ZB2DFGRYA33HQ5HCF5AQWG")
    nameless = asked(service, "no such run")
    keyless = asked(service, run.run_id, RUNWATCH_TOKEN="")
    mistyped = asked(service, run.run_id, RUNWATCH_TOKEN="runwatch_oops")
    nowhere = asked(service, run.run_id, RUNWATCH_URL="http://127.0.0.1:9")
    nothing = asked(service, run.run_id, RUNWATCH_URL="127.0.0.1:9")

    assert unknown[0] == nameless[0] == keyless[0] == mistyped[0] == nowhere[0] == nothing[0] == 2
    assert "There is no run" in unknown[1]
    assert "found no run with the id or name 'no such run'" in nameless[1]
    assert "key" in keyless[1]
    assert "key" in mistyped[1]
    assert "does not answer" in nowhere[1]
    assert "http://" in nothing[1]
