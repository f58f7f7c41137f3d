from collections.abc import Iterator

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.transport.stub_service import StubService, serving


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Layers as small as those of tests are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def line() -> RecordingLine:
    return RecordingLine()


@pytest.fixture
def service() -> Iterator[StubService]:
    with serving(StubService()) as stub:
        yield stub
