from collections.abc import Iterator

import pytest
import torch
from tests.hooks.measure.recorder import RecordingLine


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def line() -> RecordingLine:
    return RecordingLine()
