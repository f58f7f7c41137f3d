"""Apprise as we use it: the dedup key where a service has one, no redirects, no secret shown."""

import asyncio
import socket
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_network

import pytest
from tests.server.notify.sink import Sink, running_sink
from tests.waiting import LONGEST_S

from runwatch_server.errors import SettingsError
from runwatch_server.notify.apprise_sending import AppriseSender
from runwatch_server.notify.networks import ConnectionGuard, Network
from runwatch_server.notify.receivers import Receiver, Wanted
from runwatch_server.notify.sending import ATTEMPT_S, Message, cut_after

LOOPBACK = (ip_network("127.0.0.0/8"),)
MESSAGE = Message(title="t", body="b", dedup_key="k1", is_over=False)


def sender_to(url: str) -> AppriseSender:
    return AppriseSender(
        Receiver(
            name="a",
            url=url,
            wanted=Wanted(),
            send_resolved=True,
            repeat_s=60.0,
            allowed=LOOPBACK,
        )
    )


def test_a_webhook_gets_the_dedup_key_beside_the_text(sink: Sink) -> None:
    sender = sender_to(f"json://127.0.0.1:{sink.port}/hook?+X-A=b")
    assert sender.send(MESSAGE, ConnectionGuard(LOOPBACK)) == ""

    (body,) = sink.bodies
    assert (body["title"], body["message"], body["dedup_key"]) == ("t", "b", "k1")


@pytest.mark.parametrize(
    ("is_over", "did_recover", "kind"),
    [(False, True, "failure"), (True, True, "success"), (True, False, "warning")],
)
def test_an_end_without_recovery_is_no_success(
    sink: Sink, is_over: bool, did_recover: bool, kind: str
) -> None:
    message = replace(MESSAGE, is_over=is_over, did_recover=did_recover)
    sender_to(f"json://127.0.0.1:{sink.port}/").send(message, ConnectionGuard(LOOPBACK))

    assert [body["type"] for body in sink.bodies] == [kind]


def test_a_redirect_leads_nowhere_even_where_the_address_asks_for_it(sink: Sink) -> None:
    with running_sink() as elsewhere:
        sink.answer, sink.location = lambda _: 307, elsewhere.url
        sender = sender_to(f"json://127.0.0.1:{sink.port}/?redirect=yes")
        fault = sender.send(MESSAGE, ConnectionGuard(LOOPBACK))
        assert fault == "it answered with the status 307"

        assert elsewhere.posts == []


def test_a_refusal_is_no_delivery(sink: Sink) -> None:
    sink.answer = lambda _: 500

    fault = sender_to(f"json://127.0.0.1:{sink.port}/").send(MESSAGE, ConnectionGuard(LOOPBACK))
    assert fault == "it answered with the status 500"


@pytest.mark.parametrize(
    ("url", "allowed", "reason"),
    [
        ("json://127.0.0.1:1/T0PSECRET", LOOPBACK, "nothing listens at its address"),
        ("json://no-host.invalid/T0PSECRET", LOOPBACK, "its host name is not known here"),
        ("json://localhost/T0PSECRET", (), "it leads to an address outside of allow_networks"),
    ],
)
def test_what_kept_a_message_from_arriving_is_told_without_its_address(
    url: str, allowed: tuple[Network, ...], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert sender_to(url).send(MESSAGE, ConnectionGuard(allowed)) == reason
    assert caplog.text == ""


@pytest.mark.parametrize("url", ["bogus://T0PSECRET", "T0PSECRET", "syslog://T0PSECRET"])
def test_an_address_of_no_service_is_refused_without_being_shown(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SettingsError) as refused:
        sender_to(url)

    assert "T0PSECRET" not in f"{refused.value} {caplog.text}"


@contextmanager
def dripping(beginning: bytes, drop: bytes = b"2") -> Generator[tuple[int, threading.Event]]:
    """A server that never ends what it says, at this port; the event says that it has begun."""
    has_begun = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(beginning)
            while True:
                connection.sendall(drop)
                has_begun.set()
                connection.settimeout(0.02)
                with suppress(TimeoutError):
                    connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        yield listener.getsockname()[1], has_begun
        thread.join(LONGEST_S)


@pytest.mark.parametrize(
    ("beginning", "address"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", "json://127.0.0.1:{port}/"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", "json://127.0.0.1:{port}/"),
        (b"220-", "mailto://127.0.0.1:{port}/?from=a@b.cd&to=x@y.zz&mode=insecure&smtp=127.0.0.1"),
    ],
    ids=["body", "head", "mail"],
)
def test_an_answer_that_never_ends_is_cut_off(beginning: bytes, address: str) -> None:
    guard = ConnectionGuard(LOOPBACK)
    with dripping(beginning) as (port, has_begun), ThreadPoolExecutor(1) as threads:
        attempt = threads.submit(sender_to(address.format(port=port)).send, MESSAGE, guard)
        assert has_begun.wait(LONGEST_S)
        guard.cut()

        attempt.result(LONGEST_S)  # a head that ends early passes for an answer


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what came")
async def test_an_answer_that_fills_the_memory_is_cut_off() -> None:
    guard, head = (
        ConnectionGuard(LOOPBACK),
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
    )
    with dripping(head, b"2" * 2**20) as (port, _):
        async with cut_after(guard, LONGEST_S):
            sender = sender_to(f"json://127.0.0.1:{port}/")
            assert await asyncio.to_thread(sender.send, MESSAGE, guard)


@pytest.mark.slow
@pytest.mark.anyio
async def test_all_of_many_targets_are_told_in_one_attempt(sink: Sink) -> None:
    """Apprise pauses between them, by default for 5.5 s."""
    guard, targets = ConnectionGuard(LOOPBACK), [f"topic{number}" for number in range(8)]
    sender = sender_to(f"ntfy://127.0.0.1:{sink.port}/{'/'.join(targets)}")
    async with cut_after(guard, ATTEMPT_S):
        assert await asyncio.to_thread(sender.send, MESSAGE, guard) == ""

    assert sorted(body["topic"] for body in sink.bodies) == targets


def test_nothing_is_sent_on_a_line_that_was_cut(sink: Sink) -> None:
    guard = ConnectionGuard(LOOPBACK)
    guard.cut()

    fault = sender_to(f"json://127.0.0.1:{sink.port}/").send(MESSAGE, guard)
    assert fault == "it did not answer in time"
    assert sink.posts == []
