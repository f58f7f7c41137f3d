"""A real service, and real training programs beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.real_service import RealService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    """Not started yet."""
    made = RealService(tmp_path / "service")
    yield made
    made.stop()
