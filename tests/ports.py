"""Ports of this machine for the servers of a test."""

import socket


def reserved_port() -> int:
    """A TCP port of 127.0.0.1 that nobody else is given until the tests end: not before a server
    of the test's own listens on it, and not while that one is killed and started again.

    A socket that never listens stays bound to it. Both it and a server ask for SO_REUSEADDR, by
    which the server may have the port as well; who asks for any free port, or connects from one,
    is never given this one.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()  # else it would be let go here, and the port with it
    return port
