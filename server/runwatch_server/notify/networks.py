"""Where messages to receivers may go: the public internet, and what the configuration allows.

A receiver's host is a name that somebody else may point anywhere, also after we have looked
(DNS rebinding). So the check is on the address that is connected to, at the moment of connecting,
by the interpreter's own audit events: whatever library sends, none gets past it on this thread.
"""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import local
from typing import Any, Final

Network = IPv4Network | IPv6Network


class ForbiddenAddressError(OSError):
    """An address of this machine or of a private network, which no receiver may lead to."""


_EVENTS: Final = ("socket.connect", "socket.sendto", "socket.sendmsg")
"""Datagrams are sent without a connection."""


class _Held(local):
    """What the thread that is sending is held to; None: it sends nothing."""

    allowed: Sequence[Network] | None = None


_held: Final = _Held()
_installed: Final[list[bool]] = []


def may_connect(address: str, allowed: Sequence[Network]) -> bool:
    """Whether a numeric address is public or in a network that is allowed."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if any(ip.version == network.version and ip in network for network in allowed):
        return True
    return ip.is_global and not ip.is_multicast


@contextmanager
def held_to(allowed: Sequence[Network]) -> Generator[None]:
    """Within it this thread connects and sends to no address that it may not:
    ForbiddenAddressError."""
    _install()
    _held.allowed = allowed
    try:
        yield
    finally:
        _held.allowed = None


def _install() -> None:
    """Once a process, and only where messages are sent: a hook can never be taken out."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or _held.allowed is None:
        return
    address = arguments[1]  # host and port; whatever else it is, it is no public host
    if address is None:  # sent on a socket that is connected
        return
    host = str(address[0]) if len(address) >= 2 else ""
    if not may_connect(host, _held.allowed):
        raise ForbiddenAddressError("the receiver leads to an address that is not allowed")
