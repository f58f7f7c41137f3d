import gc
import sys
from collections.abc import Iterator

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from tests.hooks.uplink.stub_service import StubService, serving
from torch import nn


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


@pytest.fixture
def alone() -> None:
    """Runs that earlier tests have let go end here, as another is trained, and not in the middle
    of a test that looks at what its own run leaves in torch."""
    gc.collect()
    model = nn.Linear(1, 1)
    watch = watched(model, torch.optim.SGD(model.parameters()), line=RecordingLine())
    watch.step(1.0)
    watch.finish()


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after each microsecond, and meet in the middle of what they do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
