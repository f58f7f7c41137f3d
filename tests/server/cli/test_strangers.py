"""What the commands say where another program answers at the service's address."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from runwatch.findings import Verdict
from runwatch_server.cli.app import app
from runwatch_server.cli.service_checks import check_service

RUN_ID = "01JD3Y8K5W0000000000000000"


class Stranger(ThreadingHTTPServer):
    """Answers whatever is asked in one way, and keeps what was."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.kind = "application/json"
        self.body = b"[]"
        self.health = b""
        """Answered at /healthz, if it is set."""
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        stranger = self.server
        assert isinstance(stranger, Stranger)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        stranger.asked.append(f"{self.command} {self.path}")
        is_health = self.path == "/healthz" and stranger.health != b""
        body = stranger.health if is_health else stranger.body
        self.send_response_only(200 if is_health else stranger.status)
        for name, text in stranger.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Type", stranger.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with Stranger() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b'"nope"', "found nothing at "),
        (404, b"<html>", "found nothing at "),
        (404, b'{"error": 3}', "found nothing at "),
        (403, b"[3]", "Forbidden (403)"),
        (403, b'{"error": 3}', "Forbidden (403)"),
        (500, b"<html>", "Internal Server Error (500)"),
        (200, b"[]", "is not a Runwatch service: found '[]', wanted a JSON object"),
        (200, b"<html>", "is not a Runwatch service: found '<html>', wanted a JSON object"),
        (200, b"[" * 100_000, "is not a Runwatch service: found '[[["),
        (200, b"\xff", "wanted a JSON object"),
    ],
)
def test_json_of_another_program_is_told_in_words(
    stranger: Stranger, status: int, body: bytes, message: str
) -> None:
    stranger.status, stranger.body = status, body
    result = call("runs", "--url", stranger.url)

    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert message in result.stderr


def test_a_service_of_another_version_is_told_from_a_wrong_address(stranger: Stranger) -> None:
    stranger.status, stranger.body = 404, b'{"code": "route_not_found", "detail": "Not Found"}'
    stranger.health = b'{"status": "ok", "version": "0.0.7", "disk": "ok"}'
    result = call("retention", "show", "--url", stranger.url)

    assert result.exit_code == 2
    assert f"the service at {stranger.url} has no GET /retention: it is older or" in result.stderr
    assert "(version 0.0.7 there, " in result.stderr


def test_documents_of_another_kind_are_told_as_such(stranger: Stranger) -> None:
    stranger.body = b'{"id": 3}'
    result = call("tail", RUN_ID, "--once", "--url", stranger.url)

    assert result.exit_code == 2
    assert "is not a Runwatch service, or of another version: " in result.stderr


RULES = "version: 1\ngroups:\n- name: g\n  rules:\n  - {alert: A, when: loss > 9, severity: info}\n"
READING = {
    "runs": ("runs",),
    "runs --json": ("runs", "--json"),
    "alerts": ("alerts",),
    "alerts of a run": ("alerts", "--run", "mine"),
    "tail": ("tail", RUN_ID, "--once"),
    "tail by name": ("tail", "mine", "--once"),
    "signal": ("signal", RUN_ID, "stop"),
    "policy": ("policy", RUN_ID, "auto"),
    "approve": ("approve", "c1"),
    "cancel": ("cancel", "c1"),
    "keys create": ("keys", "create", "me", "--scope", "read"),
    "keys list": ("keys", "list"),
    "keys revoke": ("keys", "revoke", "abcdefgh"),
    "rules list": ("rules", "list"),
    "rules apply": ("rules", "apply", "{rules}"),
    "backtest": ("backtest", "--run", RUN_ID),
    "import": ("import", "{log}"),
    "retention show": ("retention", "show"),
    "retention due": ("retention", "due"),
    "retention set": ("retention", "set", "p", "--raw-days", "3"),
    "retention pin": ("retention", "pin", RUN_ID),
}
"""Every command that needs an answer of the service."""
OF_OTHERS = (
    b"{}",
    b'{"status": "login", "portal": "https://portal.example/"}',
    b'{"id": 3, "key": 3, "pinned": 3, "service": 3, "projects": 3, "state": [], "hash": 3}',
    b'{"runs": 5, "alerts": 5, "keys": 5, "rules": 5, "id": null}',
    b'{"runs": [5], "alerts": [5], "keys": [5], "rules": [5], "id": {}}',
    b'{"runs": [{}], "alerts": [{}], "keys": [{}], "rules": [{}], "id": []}',
    '{"id": 3}'.encode("utf-16"),
)


@pytest.mark.parametrize("command", READING.values(), ids=READING.keys())
@pytest.mark.parametrize("body", OF_OTHERS, ids=lambda body: str(body[:24]))
def test_every_command_tells_documents_of_another_program(
    stranger: Stranger, tmp_path: Path, command: tuple[str, ...], body: bytes
) -> None:
    rules, log = tmp_path / "rules.yaml", tmp_path / "log.csv"
    rules.write_text(RULES)
    log.write_text("step,loss\n0,1\n1,2\n")
    stranger.body = body
    words = [word.format(rules=rules, log=log) for word in command]
    result = call(*words, "--url", stranger.url)

    assert (result.exit_code, type(result.exception), result.stdout) == (2, SystemExit, "")
    assert f"{stranger.url} is not a Runwatch service, or of another version: " in result.stderr


def test_a_redirect_is_told_without_the_secrets_in_it(stranger: Stranger) -> None:
    stranger.status, stranger.body = 302, b""
    stranger.headers = {"Location": "https://portal.example/login?session=secret"}
    result = call("keys", "revoke", "abcdefgh", "--url", stranger.url)

    assert result.exit_code == 2
    assert "found a redirect to https://portal.example, wanted" in result.stderr


def test_the_doctor_is_not_taken_in_by_a_portal(stranger: Stranger) -> None:
    stranger.body = b'{"status": "ok"}'
    findings = list(check_service(stranger.url, "key"))

    assert [finding.verdict for finding in findings] == [Verdict.WRONG]
    assert "is not a Runwatch service: " in findings[0].found


def test_the_doctor_reads_no_time_from_a_text_that_is_none(stranger: Stranger) -> None:
    stranger.body = b'{"status": "ready"}'
    stranger.headers = {"Date": "soon"}

    assert {finding.name for finding in check_service(stranger.url, "key")} == {stranger.url, "key"}


def test_json_whose_type_names_an_encoding_is_json(stranger: Stranger) -> None:
    stranger.kind, stranger.body = "application/json; charset=utf-8", b'{"runs": []}'

    assert call("runs", "--url", stranger.url).exit_code == 0


@pytest.mark.parametrize("body", [b"[]", b"{}", b"<html>"])
def test_a_job_keeps_its_exit_code_whoever_answers(
    stranger: Stranger, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.body = body
    monkeypatch.setenv("RUNWATCH_URL", stranger.url)
    result = call("run", "--resume", RUN_ID, "--", sys.executable, "-c", "raise SystemExit(7)")

    assert (result.exit_code, type(result.exception)) == (7, SystemExit)


def test_the_doctor_goes_on_where_another_program_answers(stranger: Stranger) -> None:
    stranger.status, stranger.kind = 401, "application/problem+json"

    assert next(iter(check_service(stranger.url, "key"))).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    "arguments", [("keys", "revoke"), ("approve",), ("cancel",)], ids=lambda words: words[-1]
)
@pytest.mark.parametrize("given", ["../runs", "..", "a/b", "a?b", "ü", "\udcff", ""])
def test_what_is_no_id_leads_nowhere_else(
    stranger: Stranger, arguments: tuple[str, ...], given: str
) -> None:
    result = call(*arguments, given, "--url", stranger.url)

    assert result.exit_code == 2
    assert "wanted an id" in result.stderr
    assert stranger.asked == []
