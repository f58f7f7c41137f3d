"""Streams that readers hold open, over real sockets: so many, and as long as their key is good."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.waiting import until

pytestmark = pytest.mark.heavy

MOST_OF_KEY = 2


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    environment = {"RUNWATCH_STREAMS_PER_KEY": str(MOST_OF_KEY)}
    with RealService(tmp_path / "service", environment=environment) as running:
        yield running


class Reader:
    """One connection with a stream on it."""

    def __init__(self, service: RealService, key: str) -> None:
        self._http = urllib3.PoolManager(retries=False, timeout=60.0)
        self._reply = self._http.request(
            "GET",
            f"{service.url}/api/v1/fleet/stream",
            headers={"Authorization": f"Bearer {key}"},
            preload_content=False,
        )
        self.status = self._reply.status
        self.retry_after = self._reply.headers.get("Retry-After")

    def read_to_the_end(self) -> bytes:
        return b"".join(self._reply.stream(64))

    def close(self) -> None:
        self._reply.close()
        self._http.clear()


def is_let_in(service: RealService, key: str) -> bool:
    with closing(Reader(service, key)) as reader:
        return reader.status == 200


def test_a_key_holds_so_many_open_and_one_that_is_closed_makes_room(service: RealService) -> None:
    key, other = service.create_key("read"), service.create_key("read")
    with ExitStack() as stack:
        held = [stack.enter_context(closing(Reader(service, key))) for _ in range(MOST_OF_KEY)]
        refused = stack.enter_context(closing(Reader(service, key)))
        of_another = stack.enter_context(closing(Reader(service, other)))

        assert {reader.status for reader in (*held, of_another)} == {200}
        assert (refused.status, refused.retry_after) == (429, "30")
        assert b"too_many_streams" in refused.read_to_the_end()

        held[0].close()
        until(lambda: is_let_in(service, key))  # the service looks each second


def test_a_stream_ends_with_its_key(service: RealService) -> None:
    made = service.ask("POST", "/keys", {"name": "leaver", "scopes": ["read"]})
    with closing(Reader(service, made["key"])) as reader:
        assert reader.status == 200

        service.ask("DELETE", f"/keys/{made['id']}")

        assert reader.read_to_the_end().startswith(b"retry:")
    with closing(Reader(service, made["key"])) as late:
        assert late.status == 401
