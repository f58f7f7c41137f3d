"""Receivers lead to the public internet, or where the configuration says, at the very connect."""

import socket
import ssl
from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.server.notify.sink import running_sink
from tests.waiting import LONGEST_S

from runwatch_server.errors import SettingsError
from runwatch_server.notify.apprise_sending import AppriseSender
from runwatch_server.notify.networks import (
    ConnectionGuard,
    ForbiddenAddressError,
    Network,
    guarded_by,
    may_connect,
)
from runwatch_server.notify.receivers import Receiver, Wanted, load_receivers
from runwatch_server.notify.sending import Message

MESSAGE = Message(title="t", body="b", dedup_key="k", is_over=False)


def sender(url: str, *allowed: Network) -> AppriseSender:
    return AppriseSender(
        Receiver(
            name="a",
            url=url,
            wanted=Wanted(),
            send_resolved=True,
            repeat_s=60.0,
            allowed=allowed,
        )
    )


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1"),
        *("localhost", "example.com", ""),
    ],
)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not may_connect(address, ())


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_what_is_public_is_not(address: str) -> None:
    assert may_connect(address, ())


def test_a_network_that_is_allowed_is_allowed_alone() -> None:
    allowed = (ip_network("10.0.0.0/8"),)

    assert may_connect("10.1.2.3", allowed)
    assert may_connect("::ffff:10.1.2.3", allowed)
    assert not may_connect("192.168.0.1", allowed)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1"])
def test_an_address_that_can_be_seen_to_be_private_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(SettingsError, match="beside receivers, as in allow_networks"):
        sender(f"json://{host}/T0PSECRET")


def test_a_name_that_leads_to_this_machine_when_it_is_sent_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the name was public when the configuration was read."""
    real = socket.getaddrinfo

    def rebound(host: str, *rest: object, **named: object) -> object:
        return real("127.0.0.1" if host == "rebound.example" else host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    with running_sink() as sink:
        url = f"json://rebound.example:{sink.port}/"
        refused = sender(url).send(MESSAGE, ConnectionGuard(()))
        loopback = ip_network("127.0.0.0/8")
        allowed = sender(url, loopback).send(MESSAGE, ConnectionGuard([loopback]))

        assert (refused, allowed) == ("it leads to an address outside of allow_networks", "")
        assert len(sink.posts) == 1


def test_a_datagram_needs_no_connection_and_is_held_all_the_same() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        listener.bind(("127.0.0.1", 0))
        place = listener.getsockname()
        with guarded_by(ConnectionGuard(())):
            with pytest.raises(ForbiddenAddressError):
                client.sendto(b"x", place)
            with pytest.raises(ForbiddenAddressError):
                client.sendmsg([b"x"], [], 0, place)
        client.sendto(b"y", place)
        assert listener.recv(8) == b"y"


@pytest.mark.parametrize("scheme", ["mqtt", "xmpps"])
def test_a_service_whose_connections_cannot_be_held_is_refused(scheme: str) -> None:
    with pytest.raises(SettingsError, match=f"found {scheme}://"):
        sender(f"{scheme}://somebody:T0PSECRET@public.example/topic")


def test_only_the_thread_that_sends_is_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        with guarded_by(ConnectionGuard(())), pytest.raises(ForbiddenAddressError):
            socket.create_connection(place)

        socket.create_connection(place).close()


def test_a_receiver_sees_the_end_of_a_connection_before_the_next_is_made() -> None:
    """One that serves a connection at a time would otherwise answer no message after the first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        with guarded_by(ConnectionGuard([ip_network("127.0.0.0/8")])):
            socket.create_connection(place).close()
            with listener.accept()[0] as served, socket.create_connection(place):
                served.settimeout(LONGEST_S)
                assert served.recv(1) == b""


def test_a_connection_that_tls_has_taken_over_can_be_cut_while_another_is_open() -> None:
    guard = ConnectionGuard([ip_network("127.0.0.0/8")])
    with socket.create_server(("127.0.0.1", 0)) as listener, guarded_by(guard):
        place = listener.getsockname()
        plain = socket.create_connection(place)
        context = ssl.create_default_context()
        taken_over = context.wrap_socket(
            plain, server_hostname="a.example", do_handshake_on_connect=False
        )
        with taken_over, listener.accept()[0] as served, socket.create_connection(place):
            guard.cut()
            served.settimeout(LONGEST_S)
            assert served.recv(1) == b""


def test_a_network_that_is_none_keeps_the_service_from_starting(tmp_path: Path) -> None:
    (tmp_path / "receivers.yaml").write_text("allow_networks: [everywhere]")

    with pytest.raises(SettingsError, match=r"allow_networks.*10\.0\.0\.0/8"):
        load_receivers(tmp_path, None)
