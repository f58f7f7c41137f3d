from collections.abc import Iterator

import pytest
from tests.hooks.transport.stub_service import StubService, serving


@pytest.fixture
def service() -> Iterator[StubService]:
    with serving(StubService()) as stub:
        yield stub
