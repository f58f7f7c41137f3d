"""Restricts where messages to receivers may go: the public internet, and what the configuration
allows. Lets another thread cut off an attempt that takes too long.

A receiver's host is a name that somebody else may point anywhere, even after it was checked (DNS
rebinding). So the address is checked at the moment of connecting, through the interpreter's own
audit events: no library can connect past the check on this thread.
"""

import os
import socket
import sys
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from threading import Lock, local
from typing import Any, Final, NamedTuple

Network = IPv4Network | IPv6Network


class ForbiddenAddressError(OSError):
    """An address of this machine or of a private network, which receivers must not lead to."""


_CONNECT: Final = "socket.connect"
_EVENTS: Final = (_CONNECT, "socket.sendto", "socket.sendmsg")
"""Includes sending, because datagrams are sent without a connection."""


_RECEIVED_AT: Final = 128
"""Where Linux, since 4.1, has `tcpi_bytes_received` in its `struct tcp_info`."""


class CutOffError(OSError):
    """The attempt to send was cut off before it connected."""


class _Connection(NamedTuple):
    """A connection: the number of its file, and a duplicate, because TLS takes the file from one
    socket to another."""

    fileno: int
    duplicate: socket.socket

    @property
    def is_closed(self) -> bool:
        """Whether the library has closed it; another file may have its number by now."""
        try:
            found = os.fstat(self.fileno)
        except OSError:
            return True
        return not os.path.samestat(found, os.fstat(self.duplicate.fileno()))


class ConnectionGuard:
    """What one attempt to send may connect to, and the connections that it has made.

    `cut` ends them from another thread. An HTTP client's timeout bounds only the wait for the next
    part of an answer: a receiver that sends a byte now and then would hold the thread for ever.
    """

    def __init__(self, allowed: Sequence[Network]) -> None:
        self.allowed = allowed
        self._lock = Lock()
        self._connections: list[_Connection] = []
        self._is_cut = False

    def add(self, connecting: socket.socket) -> None:
        """Keep a connection, and let go of those that are closed: a receiver sees their end only
        then, and one that serves a connection at a time waits for it. Raises CutOffError after
        `cut`."""
        with self._lock:
            if self._is_cut:
                raise CutOffError("the attempt took too long")
            self._drop(one for one in self._connections if one.is_closed)
            duplicate = socket.socket(fileno=os.dup(connecting.fileno()))
            self._connections.append(_Connection(connecting.fileno(), duplicate))

    @property
    def num_received(self) -> int:
        """Bytes that came on the connections; 0 where the system does not count them."""
        with self._lock:
            return sum(_num_received(one.duplicate) for one in self._connections)

    def cut(self) -> None:
        """Shut the connections down, which ends reads and writes on them. May be called again."""
        with self._lock:
            self._is_cut = True
            for one in self._connections:
                with suppress(OSError):  # not connected yet, or no longer
                    one.duplicate.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the duplicates."""
        with self._lock:
            self._drop(self._connections)

    def _drop(self, connections: Iterable[_Connection]) -> None:
        for one in tuple(connections):
            one.duplicate.close()
            self._connections.remove(one)


def _num_received(connection: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    with suppress(OSError):  # no TCP
        known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
        if len(known) == _RECEIVED_AT + 8:
            return int.from_bytes(known[_RECEIVED_AT:], sys.byteorder)
    return 0


class _ThreadGuard(local):
    """The restriction of the thread while it sends; None if it sends nothing."""

    guard: ConnectionGuard | None = None


_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All that is assigned to the public internet (RFC 4291); `is_global` is true of more."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""The last four bytes are the IPv4 address that a NAT64 gateway connects to (RFC 6052)."""

_RELAYED: Final = (
    IPv6Network("2002::/16"),  # 6to4: an IPv4 address follows (RFC 3056)
    IPv6Network("2001::/32"),  # Teredo: likewise (RFC 4380)
    IPv4Network("192.88.99.0/24"),  # the relays of 6to4 (RFC 7526)
    IPv4Network("192.0.0.0/24"),  # protocol assignments (RFC 6890); Python before 3.13 has a part
)
"""Not public hosts, though `is_global` of some Python calls them so."""

_thread_guard: Final = _ThreadGuard()
_installed: Final[list[bool]] = []


def may_connect(address: str, allowed: Sequence[Network]) -> bool:
    """Whether a numeric address is public or in an allowed network."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        ip = _within(ip)
    if _is_in(ip, allowed):
        return True
    if ip.version == 6 and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not ip.is_multicast and not _is_in(ip, _RELAYED)


def _within(ip: IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that the connection really goes to, if there is one."""
    if ip in _NAT64:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped or ip


def _is_in(ip: IPv4Address | IPv6Address, networks: Iterable[Network]) -> bool:
    return any(ip.version == network.version and ip in network for network in networks)


@contextmanager
def guarded_by(guard: ConnectionGuard) -> Generator[None]:
    """Within this context, the thread may connect and send only to allowed addresses; others raise
    ForbiddenAddressError. `guard` keeps the connections."""
    _install()
    _thread_guard.guard = guard
    try:
        yield
    finally:
        _thread_guard.guard = None
        guard.close()


def _install() -> None:
    """Install the hook, once per process and only if messages are sent: it can never be removed."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)


def _audit(
    event: str,
    arguments: tuple[Any, ...],
    *,
    events: Collection[str] = _EVENTS,
    thread: _ThreadGuard = _thread_guard,
) -> None:
    """The hook. It is called until the interpreter has ended, when this module's names are gone
    already: what it asks at each event, it holds itself."""
    if event not in events or (guard := thread.guard) is None:
        return
    address = arguments[1]  # host and port; anything else is no public host
    if address is None:  # the socket is already connected
        return
    host = str(address[0]) if len(address) >= 2 else ""
    if not may_connect(host, guard.allowed):
        raise ForbiddenAddressError("the receiver leads to an address that is not allowed")
    if event == _CONNECT:
        guard.add(arguments[0])
