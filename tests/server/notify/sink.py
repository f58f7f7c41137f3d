"""A real HTTP server that keeps what it is sent, and answers as a test tells it to."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Sink:
    """What came, and how to answer it."""

    url: str = ""
    posts: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Path and JSON body, in the order of arrival."""
    answer: Callable[[Any], int] = lambda _: 200
    """The status for a body."""
    refused: frozenset[str] = frozenset()
    """Paths that are answered with 500, whatever comes."""
    location: str = ""
    """Sent along with an answer of 3xx."""

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.posts]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def running_sink(port: int = 0) -> Generator[Sink]:
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length) or b"null")
            sink.posts.append((self.path, body))
            self.send_response(500 if self.path in sink.refused else sink.answer(body))
            if sink.location:
                self.send_header("Location", sink.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            sink.posts.append((self.path, None))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test shows what came."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
