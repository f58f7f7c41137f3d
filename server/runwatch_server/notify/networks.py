"""Where messages to receivers may go: the public internet, and what the configuration allows.
And how long: what was connected to can be cut off.

A receiver's host is a name that somebody else may point anywhere, also after we have looked
(DNS rebinding). So the check is on the address that is connected to, at the moment of connecting,
by the interpreter's own audit events: whatever library sends, none gets past it on this thread.
"""

import os
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import Lock, local
from typing import Any, Final

Network = IPv4Network | IPv6Network


class ForbiddenAddressError(OSError):
    """An address of this machine or of a private network, which no receiver may lead to."""


_CONNECT: Final = "socket.connect"
_EVENTS: Final = (_CONNECT, "socket.sendto", "socket.sendmsg")
"""Datagrams are sent without a connection."""


class CutOffError(OSError):
    """Nobody waits any longer for what would be sent."""


class Line:
    """What one attempt to send may connect to, and the connections that it made.

    `cut` ends them from another thread. Timeouts of an HTTP client bound only the wait for the next
    part of an answer, and a receiver that sends a byte now and then would hold its thread for good.
    """

    def __init__(self, allowed: Sequence[Network]) -> None:
        self.allowed = allowed
        self._lock = Lock()
        self._connections: list[socket.socket] = []
        self._is_cut = False

    def keep(self, connecting: socket.socket) -> None:
        """Keeps a duplicate, since TLS takes the socket itself away. Raises CutOffError once it is
        cut."""
        with self._lock:
            if self._is_cut:
                raise CutOffError("the attempt took too long")
            self._connections.append(socket.socket(fileno=os.dup(connecting.fileno())))

    def cut(self) -> None:
        """Whoever reads or writes sees the end of the connection; may be called again."""
        with self._lock:
            self._is_cut = True
            for connection in self._connections:
                with suppress(OSError):  # it is not connected, or no more
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Lets go of the duplicates."""
        with self._lock:
            while self._connections:
                self._connections.pop().close()


class _Held(local):
    """What the thread that is sending is held to; None: it sends nothing."""

    line: Line | None = None


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
def held_to(line: Line) -> Generator[None]:
    """Within it this thread connects and sends to no address that it may not:
    ForbiddenAddressError. Connections are kept by the line."""
    _install()
    _held.line = line
    try:
        yield
    finally:
        _held.line = None
        line.close()


def _install() -> None:
    """Once a process, and only where messages are sent: a hook can never be taken out."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    line = _held.line
    if event not in _EVENTS or line is None:
        return
    address = arguments[1]  # host and port; whatever else it is, it is no public host
    if address is None:  # sent on a socket that is connected
        return
    host = str(address[0]) if len(address) >= 2 else ""
    if not may_connect(host, line.allowed):
        raise ForbiddenAddressError("the receiver leads to an address that is not allowed")
    if event == _CONNECT:
        line.keep(arguments[0])
