"""The way to a service that only the environment's proxy knows."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hooks.uplink.factories import started, train
from tests.hooks.uplink.stub_service import StubService

from runwatch_hooks.uplink.client import Client, RetryLaterError, proxy_to

ELSEWHERE = "http://runwatch.invalid:8321"
"""No machine has that name: who asks for its address fails."""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have some."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


class Tunnel:
    """A proxy that notes what it is asked for, and refuses."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            self.asked = connection.recv(65_536).decode().split("\r\n")
            connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    opened = Tunnel()
    yield opened
    opened.close()


def test_a_run_is_told_by_way_of_the_proxy(
    tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", service.url)  # which takes whole addresses, as a proxy does
    uplink = started(tmp_path, ELSEWHERE)
    train(uplink, 3)
    uplink.close("finished")

    assert service.steps == [0, 1, 2]


def test_an_encrypted_address_is_reached_through_a_tunnel(
    tunnel: Tunnel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@{tunnel.address}")
    client = Client("https://runwatch.invalid", "rw_key", connect_timeout_s=5, read_timeout_s=5)
    with pytest.raises(RetryLaterError):
        client.request("GET", "/runs")

    assert tunnel.asked[0].startswith("CONNECT runwatch.invalid:443 ")
    assert "proxy-authorization: basic bwu6cebzcw==" in [line.lower() for line in tunnel.asked]
    assert not any("rw_key" in line for line in tunnel.asked)


def test_this_machine_and_what_no_proxy_names_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example,10.0.0.7")
    direct = ("http://127.0.0.1:8321", "http://localhost", "http://[::1]:8321",
              "http://runwatch.inside.example:8321", "http://10.0.0.7:8321")  # fmt: skip

    assert [proxy_to(url) for url in direct] == [None] * 5
    assert proxy_to(ELSEWHERE) == "http://proxy:3128"
    assert proxy_to("https://runwatch.invalid") is None


def test_a_proxy_of_an_unknown_kind_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@proxy:1080")
    Client(ELSEWHERE, None, connect_timeout_s=5, read_timeout_s=5).close()

    assert (
        "the environment's proxy (socks5://...) has a scheme that is not supported" in caplog.text
    )
    assert "secret" not in caplog.text
