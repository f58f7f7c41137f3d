"""A line to a service on which answers get lost: the request arrives, its answer does not."""

import socket
import socketserver
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

_CHUNK: Final = 65536


class CuttingProxy(socketserver.ThreadingTCPServer):
    """Carries each connection to a port of this machine, until an answer is to be lost."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, loses: Callable[[], bool]) -> None:
        self.upstream = ("127.0.0.1", port)
        self.loses = loses
        """Asked once for each piece of an answer."""
        super().__init__(("127.0.0.1", 0), _Line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Line(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = self.server
        assert isinstance(proxy, CuttingProxy), "made by it"
        with suppress(OSError), socket.create_connection(proxy.upstream, timeout=60) as far:
            asking = threading.Thread(target=_carry, args=(self.request, far), daemon=True)
            asking.start()
            with suppress(OSError):
                while (answer := far.recv(_CHUNK)) and not proxy.loses():
                    self.request.sendall(answer)
            for end in (self.request, far):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            asking.join(60)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_CHUNK):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def cutting_proxy(port: int, loses: Callable[[], bool]) -> Generator[CuttingProxy]:
    with CuttingProxy(port, loses) as proxy:
        serving = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            serving.join(60)
