"""`runwatch run`: a job under a service of its own, with what it is given and what it gives back.

The jobs are small Python programs: `run` knows no trainer, only the environment.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from tests.server.cli.test_serve import Served
from tests.waiting import LONGEST_S, until
from typer.testing import CliRunner

from runwatch.ulids import ulid
from runwatch_server.cli.app import app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "runwatch_server.cli"]
RUN = [*COMMAND, "run"]
ASKS = """
import json, os, urllib.request
url, run_id = os.environ["RUNWATCH_URL"], os.environ["RUNWATCH_RUN_ID"]
headers = {"Authorization": "Bearer " + os.environ["RUNWATCH_TOKEN"]}
project = os.environ.get("RUNWATCH_PROJECT", "default")
body = json.dumps({"run_id": run_id, "name": "script", "project": project}).encode()
headers["Content-Type"] = "application/json"
urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/runs", body, headers)).read()
print(run_id)
"""
BREAKS = """
import math
from runwatch_hooks.plain import open_run
run = open_run("breaks")
for step in range(60):
    run.step(2.0 - step / 100 if step < 40 else math.nan)
run.finish()
"""
BREAKS_AND_WAITS = """
import math, pathlib, time
from runwatch_hooks.plain import open_run
run = open_run("breaks")
for step in range(60):
    run.step(2.0 - step / 100 if step < 40 else math.nan)
while not pathlib.Path("seen").exists():
    time.sleep(0.01)
run.finish()
"""
TWO_RUNS = """
import math
from runwatch_hooks.plain import open_run
from runwatch.ulids import ulid
for name, last in (("good", 1.0), ("bad", math.nan)):
    run = open_run(name, run_id=ulid(1_800_000_000_000, name.ljust(10).encode()))
    for step in range(60):
        run.step(2.0 if step < 40 else last)
    run.finish()
"""
OPENS = (
    ASKS
    + """
facts = {"token": run_id, "started_at": __import__("time").time()}
path = f"{url}/api/v1/runs/{run_id}/attempts"
body = json.dumps(facts).encode()
urllib.request.urlopen(urllib.request.Request(path, body, headers)).read()
"""
)
COUNTS_SIGNALS = """
import signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: got.append(number))
print("ready", flush=True)
while not got:
    time.sleep(0.01)  # signal.pause() would sleep through one that came just before it
print(*got)
sys.exit(9)
"""


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    return subprocess.Popen(
        [*RUN, *arguments],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # no terminal is ours, whoever started the tests
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    process = start(folder, *arguments)
    out, said = process.communicate(timeout=LONGEST_S)
    return process.returncode, out, said


class Terminal:
    """A command on a terminal of its own, which a person reads and presses Ctrl-C on."""

    def __init__(self, folder: Path, *arguments: str, started_by_script: bool = False) -> None:
        """`started_by_script`: with &, so that it ignores SIGINT from the start."""
        self._ours, theirs = pty.openpty()

        def begin() -> None:
            os.login_tty(theirs)
            if started_by_script:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        variables = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=variables | {"TERM": "xterm"},
            preexec_fn=begin,
        )
        os.close(theirs)
        self.said = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + LONGEST_S
        while (found := re.search(pattern, self.said)) is None:
            assert time.monotonic() < deadline, self.said
            self.said += self._read()
        return found

    def press_ctrl_c(self) -> int:
        """The exit code with which it ends."""
        os.write(self._ours, b"\x03")
        return self.end()

    def end(self) -> int:
        while (more := self._read()) or self.process.poll() is None:
            self.said += more
        os.close(self._ours)
        return self.process.wait(LONGEST_S)

    def _read(self) -> str:
        if not select.select([self._ours], [], [], 0.2)[0]:
            return ""
        try:
            return os.read(self._ours, 65536).decode("utf-8", "replace").replace("\r", "")
        except OSError:  # the other end is closed
            return ""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose service stays, for tests of what a job is given and of what is read of it."""
    folder = tmp_path_factory.mktemp("shared")
    assert run(folder, "--keep", "true")[0] == 0
    yield folder
    assert run(folder, "true")[0] == 0
    assert ends(kept_service(folder)[1])


def kept_service(folder: Path) -> tuple[str, int, dict[str, str]]:
    """Address, process and the administrator's header of a service that was left running."""
    record = json.loads((folder / "runwatch-data" / "run.json").read_text())
    return record["url"], record["pid"], {"Authorization": f"Bearer {record['admin_key']}"}


def ask(url: str, headers: dict[str, str]) -> Any:
    """The service's answer, however long it takes."""
    return httpx.get(url, headers=headers, timeout=LONGEST_S).json()


def ends(pid: int) -> bool:
    """Whether a process is over, or soon: it frees its data directory a little before."""
    return until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_job_reports_to_a_service_that_ends_with_it(tmp_path: Path) -> None:
    code, out, said = run(tmp_path, sys.executable, "-c", ASKS)

    assert code == 0, said
    run_id = out.strip()
    assert f"/jobs/{run_id}?name=" in said
    assert "admin_key in" in said  # and not the key itself: this is no terminal
    assert "no alert has fired" in said
    assert "runwatch_" not in said.replace("runwatch_hooks", "")
    url, pid, _ = kept_service(tmp_path)
    assert ends(pid)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_at_the_end_one_reads_what_fired(shared: Path) -> None:
    code, _, said = run(shared, "--keep", sys.executable, "-c", BREAKS)

    assert code == 0, said
    assert "runwatch: critical: NonFinite, loss NaN at step 40" in said
    assert "no alert has fired" not in said


def test_a_critical_alert_is_read_at_once_beside_what_the_job_prints(shared: Path) -> None:
    process = start(shared, "--keep", sys.executable, "-c", BREAKS_AND_WAITS)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        told = next(line for line in lines if "critical" in line)
    finally:
        (shared / "seen").touch()
        _, rest = process.communicate(timeout=LONGEST_S)

    assert told.startswith("runwatch: critical: NonFinite, loss NaN at step 40"), rest
    assert process.returncode == 0


def test_alerts_of_runs_with_ids_of_their_own_are_read_with_their_names(shared: Path) -> None:
    code, _, said = run(shared, "--keep", sys.executable, "-c", TWO_RUNS)

    assert code == 0, said
    assert "runwatch: critical in bad: NonFinite, loss NaN at step 40" in said
    assert "in good" not in said
    assert "has opened no run" not in said


def test_with_open_alerts_and_a_terminal_the_service_stays_until_ctrl_c(tmp_path: Path) -> None:
    job = [sys.executable, "-c", BREAKS + "import sys; sys.exit(5)"]
    terminal = Terminal(tmp_path, "run", *job, started_by_script=True)
    link = terminal.read_until(r"Watched at (http://\S+)/login\?next=(/jobs/\S+)#key=(\S+)\n")
    terminal.read_until(r"1 alert is open, so the service stays until Ctrl-C:  \S+#key=\S+\n")
    headers = {"Authorization": f"Bearer {link[3]}"}
    runs = ask(f"{link[1]}/api/v1/runs", headers)["runs"]

    code = terminal.press_ctrl_c()

    assert [run["name"] for run in runs] == ["breaks"]
    assert unquote(link[2]) == f"/jobs/{runs[0]['id']}?name=python"
    assert code == 5, terminal.said
    assert "look at it again:  runwatch open runwatch-data" in terminal.said
    assert ends(kept_service(tmp_path)[1])


def test_without_an_open_alert_all_ends_with_the_job_and_is_opened_later(tmp_path: Path) -> None:
    job = Terminal(tmp_path, "run", sys.executable, "-c", ASKS)
    assert job.end() == 0, job.said
    assert "no alert has fired" in job.said
    later = Terminal(tmp_path, "open", "runwatch-data")
    link = later.read_until(r"open until Ctrl-C:  (http://\S+)/login\?next=(/runs/\S+)#key=(\S+)\n")
    shown = ask(f"{link[1]}/api/v1{link[2]}", {"Authorization": f"Bearer {link[3]}"})

    assert later.press_ctrl_c() == 0
    assert shown["name"] == "script"
    assert ends(kept_service(tmp_path)[1])


def test_a_service_that_was_kept_goes_on_when_its_record_was_looked_at(tmp_path: Path) -> None:
    assert run(tmp_path, "--keep", "true")[0] == 0
    url, pid, headers = kept_service(tmp_path)
    try:
        terminal = Terminal(tmp_path, "open")
        terminal.read_until(re.escape(f"open until Ctrl-C:  {url}/login?next=/#key="))
        assert terminal.press_ctrl_c() == 0
        assert ask(f"{url}/api/v1/runs", headers)["runs"] == []
    finally:
        os.kill(pid, signal.SIGTERM)
    assert ends(pid)


def test_a_record_that_others_made_is_opened_with_a_key_of_its_own(tmp_path: Path) -> None:
    service = Served(tmp_path / "data", tmp_path / "log")
    in_use = CliRunner().invoke(app, ["open", str(tmp_path / "data")])
    assert service.stop() == 0
    terminal = Terminal(tmp_path, "open", "data")
    link = terminal.read_until(r"open until Ctrl-C:  (http://\S+)/login\?next=/#key=(\S+)\n")
    keys = ask(f"{link[1]}/api/v1/keys", {"Authorization": f"Bearer {link[2]}"})["keys"]

    assert terminal.press_ctrl_c() == 0
    assert "new admin" in {key["name"] for key in keys}
    assert in_use.exit_code == 2
    assert "its page is at the address that it printed" in in_use.stderr


def test_where_nothing_is_kept_nothing_is_opened_and_nothing_made(tmp_path: Path) -> None:
    nothing = CliRunner().invoke(app, ["open", str(tmp_path / "none")])

    assert nothing.exit_code == 2
    assert "wanted the data folder of" in nothing.stderr
    assert not (tmp_path / "none").exists()


def test_the_next_job_uses_the_service_that_was_kept_and_ends_it(tmp_path: Path) -> None:
    named = ["--name", "mine", "--project", "speech"]
    code, out, said = run(tmp_path, "--keep", *named, sys.executable, "-c", ASKS)
    assert code == 0, said
    url, pid, headers = kept_service(tmp_path)
    assert "look at it again:  runwatch open runwatch-data\n" in said
    assert f"kill {pid} " in said
    shown = ask(f"{url}/api/v1/runs/{out.strip()}", headers)
    assert (shown["name"], shown["project"]) == ("mine", "speech")

    code, again, said = run(tmp_path, "--resume", out[:14], "--", sys.executable, "-c", ASKS)

    assert (code, again) == (0, out), said
    assert url in said
    assert ends(pid)


def test_a_first_start_that_was_cut_short_leaves_its_keys_to_the_next(tmp_path: Path) -> None:
    """As Ctrl-C does right before they are written down."""
    record = tmp_path / "runwatch-data" / "run.json"
    assert run(tmp_path, "true")[0] == 0
    for _ in range(2):
        record.unlink()
        code, _, said = run(tmp_path, sys.executable, "-c", ASKS)
        assert code == 0, said


def test_keys_that_others_made_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "runwatch-data"
    assert run(tmp_path, "true")[0] == 0
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").unlink()
    (folder / "admin-key").write_text(f"{record['trainer_key'][:-1]}\n")

    code, _, said = run(tmp_path, "true")

    assert code == 2
    assert "known to you alone" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_job_once_and_its_code_comes_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, "--", sys.executable, "-c", COUNTS_SIGNALS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)
    out, said = process.communicate(timeout=LONGEST_S)

    assert process.returncode == 9, said
    assert out == f"{int(number)}\n"
    assert ends(kept_service(tmp_path)[1])


def test_a_job_that_a_signal_ends_has_the_code_of_a_shell(shared: Path) -> None:
    code, _, said = run(shared, "--keep", "sh", "-c", "kill -KILL $$")

    assert code == 128 + signal.SIGKILL
    assert "sh has opened no run. It has to call `runwatch_hooks.attach`" in said
    assert "go on with it" not in said


@pytest.mark.parametrize(
    ("leaves", "state", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "failed", "the job was ended by SIGKILL"),
        ("os.kill(os.getpid(), 15)", "stopped", "the job was ended by SIGTERM"),
        ("os._exit(3)", "failed", "the job ended with exit code 3; its hook did not report"),
        ("os._exit(0)", "", None),
    ],
)
def test_of_a_job_that_could_not_say_how_it_ends_its_parent_does(
    shared: Path, leaves: str, state: str, reason: str | None
) -> None:
    code, out, said = run(shared, "--keep", sys.executable, "-uc", OPENS + leaves)

    assert (code == 0) == (reason is None)
    url, _, headers = kept_service(shared)
    shown = ask(f"{url}/api/v1/runs/{out.strip()}", headers)
    (attempt,) = ask(f"{url}/api/v1/runs/{out.strip()}/attempts", headers)["attempts"]
    if reason is None:
        assert attempt["closed_at"] is None
        assert "ended" not in said
    else:
        assert shown["state"] == attempt["status"] == state
        assert attempt["reason"].startswith(reason)
        assert f"runwatch: {reason}" in said


def test_an_attempt_that_is_older_than_the_job_is_not_ended_by_it(shared: Path) -> None:
    _, out, _ = run(shared, "--keep", sys.executable, "-uc", OPENS + "os._exit(0)")

    code, _, said = run(shared, "--keep", "--resume", out.strip(), "--", "sh", "-c", "exit 4")

    url, _, headers = kept_service(shared)
    (attempt,) = ask(f"{url}/api/v1/runs/{out.strip()}/attempts", headers)["attempts"]
    assert (code, attempt["closed_at"]) == (4, None), said


def test_on_a_terminal_the_first_key_is_read_and_is_in_no_file(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "serve", "--port", "0", "--data-dir", "data")
    said = terminal.read_until(
        r"First start: this is the admin key\. [^$]*  (http://\S+)/login#key=(\S+)\n"
    )
    terminal.read_until(rf"export RUNWATCH_TOKEN={said[2]}\n")
    answer = ask(f"{said[1]}/api/v1/runs", {"Authorization": f"Bearer {said[2]}"})

    assert terminal.press_ctrl_c() == 0
    assert answer["runs"] == []
    assert not (tmp_path / "data" / "admin-key").exists()


def test_mistakes_are_told_before_anything_is_started(tmp_path: Path) -> None:
    assert run(tmp_path, "no-such-program")[0] == 127
    assert run(tmp_path, "--resume", "7", "true")[0] == 2
    (tmp_path / "plain.py").touch(0o600)
    code, _, said = run(tmp_path, "./plain.py")
    assert code == 126
    assert "runwatch run -- python train.py" in said
    assert not (tmp_path / "runwatch-data").exists()


def wait_for_step(folder: Path, run_id: str, step: int) -> None:
    """Until the service holds the run's step."""

    def is_held() -> bool:
        try:
            url, _, headers = kept_service(folder)
            shown = ask(f"{url}/api/v1/runs/{run_id}", headers)
        except (OSError, httpx.HTTPError):
            return False
        return bool((shown.get("last_step") or 0) >= step)

    until(is_held)


@pytest.mark.heavy
def test_torchrun_is_interrupted_and_goes_on_as_the_next_attempt(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run_id = ulid(int(time.time() * 1000), bytes(10))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = [sys.executable, *torchrun, str(ROOT / "examples" / "ddp.py"), "--steps"]
    first = start(tmp_path, "--keep", "--resume", run_id, "--", *job, "1000000")
    try:
        wait_for_step(tmp_path, run_id, 5)
    finally:
        first.send_signal(signal.SIGINT)
        _, said = first.communicate(timeout=LONGEST_S)
    assert first.returncode != 0, said
    code, _, said = run(tmp_path, "--keep", "--resume", run_id, "--", *job, "20")

    assert code == 0, said
    url, pid, headers = kept_service(tmp_path)
    try:
        path = f"{url}/api/v1/runs/{run_id}/attempts"
        attempts = ask(path, headers)["attempts"]
        assert [attempt["attempt"] for attempt in attempts] == [1, 2]
        assert attempts[0]["last_step"] >= 5
        assert attempts[1]["status"] == "finished"
    finally:
        assert run(tmp_path, "--", "true")[0] == 0
    assert ends(pid)
    assert re.search(r"run \S+; go on with it", said)
