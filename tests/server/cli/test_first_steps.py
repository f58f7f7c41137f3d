"""What the commands say to who has no service yet, or no key, or forgot where it is."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from tests.forking import run
from tests.server.cli.test_serve import Served
from typer.testing import CliRunner, Result

from runwatch_server.cli import doctor
from runwatch_server.cli.app import app

EXAMINER = ("torch", "runwatch_hooks.doctor.examination")


@pytest.fixture(autouse=True)
def examined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` has the trainer's side examined by a process of its own: here a forked one, which
    need not import torch. Without torch that process begins at once anyway."""
    if find_spec("torch") is None:
        return

    def run_module(command: Sequence[str], **_: object) -> "CompletedProcess[str]":
        module, *arguments = command[command.index("-m") + 1 :]
        return run(EXAMINER, module, arguments)

    monkeypatch.setattr(doctor, "subprocess", SimpleNamespace(run=run_module, PIPE=None))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def said(result: Result) -> str:
    """On one line, as a narrow terminal breaks it anywhere."""
    return " ".join(" ".join((result.output, result.stderr)).replace("│", " ").split())


def test_where_nobody_answers_one_reads_how_to_get_a_service() -> None:
    result = call("runs", "--url", "http://127.0.0.1:9")

    assert result.exit_code == 2
    assert "http://127.0.0.1:9 does not answer" in result.stderr
    assert "`runwatch serve` starts a service here" in result.stderr


def test_a_login_link_is_no_address_and_its_key_is_not_repeated() -> None:
    result = call("runs", "--url", "http://127.0.0.1:9/login#key=runwatch_secret")

    assert result.exit_code == 2
    assert "found more behind http://127.0.0.1, wanted the address" in said(result)
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("runwatch_hunter2", "found a text of 16 characters without '://', wanted http://"),
        ("ftp://me:hunter2@watch.example", "found ftp://watch.example, wanted http://"),
        ("http://me:hunter2@127.0.0.1:hunter2", "found http://127.0.0.1 with a host or a port"),
        ("http://me:hunter2@127.0.0.1:99999", "found http://127.0.0.1 with a host or a port"),
        ("http://me:hunter2/@127.0.0.1:9", "found http://127.0.0.1 with a host or a port"),
        ("http://me:hunter2@127.0.0.1:9", "http://127.0.0.1:9 does not answer"),
    ],
)
@pytest.mark.parametrize("command", [("runs",), ("doctor",), ("run", "--", "true")])
def test_what_may_be_a_secret_is_not_repeated(
    url: str, message: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_URL", url)
    result = call(*command)

    assert (message if command != ("doctor",) else message.partition(" does ")[0]) in said(result)
    assert "hunter2" not in result.output + result.stderr


KEY = "runwatch_hunter2_hunter2"


@pytest.mark.parametrize("key", [f"{KEY}\r", f"{KEY}\n", f" {KEY}\r\n"])
@pytest.mark.parametrize("command", [("runs",), ("run", "--", "true")])
def test_a_key_from_a_file_may_end_its_line(
    key: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("RUNWATCH_TOKEN", key)
    result = call(*command)

    assert "http://127.0.0.1:9 does not answer" in said(result)
    assert "Connection refused" in said(result)
    assert "hunter2" not in result.output + result.stderr


@pytest.mark.parametrize("odd", ["\r", "ü", "\udcff", "\u2028"])
@pytest.mark.parametrize("command", [("runs",), ("doctor",), ("run", "--", "true")])
def test_what_no_key_has_is_told_without_the_key(
    odd: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("RUNWATCH_TOKEN", f"{KEY}{odd}{KEY}")
    result = call(*command)

    assert "at place 25 of 49, wanted a key" in said(result)
    assert "RUNWATCH_TOKEN" in said(result)
    assert "hunter2" not in result.output + result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.slow
def test_an_address_with_a_page_or_a_wrong_scheme_is_told_as_such(tmp_path: Path) -> None:
    service = Served(tmp_path / "data", tmp_path / "log")
    port = service.url.rpartition(":")[2]
    try:
        of_page = call("runs", "--url", f"{service.url}/runs")
        secure = call("runs", "--url", service.url.replace("http:", "https:"))
        taken = call("serve", "--data-dir", str(tmp_path / "other"), "--port", port)
    finally:
        service.stop()

    assert (of_page.exit_code, secure.exit_code, taken.exit_code) == (2, 2, 2)
    assert f"found nothing at {service.url}/runs/api/v1" in of_page.stderr
    assert "wanted the address of a Runwatch service" in of_page.stderr
    assert "plain HTTP: wanted http://" in secure.stderr
    said = " ".join(taken.stderr.split())
    assert f"found 127.0.0.1:{port} (Address already in use), wanted" in said


@pytest.mark.slow
def test_who_gives_no_key_reads_how_and_who_forgot_it_reads_where_it_is(tmp_path: Path) -> None:
    data_dir, log = tmp_path / "data", tmp_path / "log"
    first = Served(data_dir, log)
    try:
        keyless = call("runs", "--url", first.url)
    finally:
        first.stop()
    (data_dir / "run.json").write_text(json.dumps({"admin_key": "as `runwatch run` keeps it"}))
    second = Served(data_dir, log)
    try:
        said = second.said
    finally:
        second.stop()

    assert keyless.exit_code == 2
    assert "set RUNWATCH_TOKEN, or give --token" in keyless.stderr
    assert f"keeps the admin key in {data_dir / 'run.json'}" in said
