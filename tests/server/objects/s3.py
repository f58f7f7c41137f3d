"""moto's server: the API of S3 over HTTP on loopback, its objects in memory."""

import urllib.request
from collections.abc import Mapping
from typing import Any, cast

from moto.server import ThreadedMotoServer
from tests.ports import reserved_port


class S3Server:
    def __init__(self) -> None:
        self._port = reserved_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Again, where it was stopped: under the same address, with the objects that it had."""
        # moto has no types for its server.
        self._server: Any = cast(Any, ThreadedMotoServer)(ip_address="127.0.0.1", port=self._port)
        self._server.start()

    @property
    def variables(self) -> Mapping[str, str]:
        """What a client finds it by."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
        }

    def make_bucket(self, name: str) -> str:
        self._ask("PUT", f"/{name}")
        return name

    def get(self, path: str) -> bytes:
        return self._ask("GET", f"/{path}")

    def put(self, path: str, content: bytes) -> None:
        self._ask("PUT", f"/{path}", content)

    def stop(self) -> None:
        self._server.stop()

    def _ask(self, method: str, path: str, content: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.url}{path}", data=content, method=method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            found: bytes = reply.read()
        return found
