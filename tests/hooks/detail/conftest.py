import pytest
from tests.hooks.measure.recorder import RecordingLine


@pytest.fixture
def line() -> RecordingLine:
    return RecordingLine()
