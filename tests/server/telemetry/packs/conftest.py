"""The object stores of tests/server/objects, for packs."""

from pathlib import Path

import pytest
from tests.server.objects.conftest import bucket_url, s3

from runwatch_server.objects import ObjectStore, make_objects

__all__ = ["bucket_url", "s3"]


@pytest.fixture
def objects_url(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> str:
    """Beside SQLite a folder, beside PostgreSQL a bucket, as they are used."""
    if engine == "postgresql":
        url: str = request.getfixturevalue("bucket_url")
        return url
    return f"file://{tmp_path}/objects"


@pytest.fixture
def objects(objects_url: str, tmp_path: Path) -> ObjectStore:
    store = make_objects(objects_url)
    assert store is not None
    return store
