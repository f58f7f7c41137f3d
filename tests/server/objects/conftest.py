"""A real S3 API on loopback, and the stores that a test runs over."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.objects.s3 import S3Server

from runwatch_server.objects import ObjectStore, make_objects


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def bucket_url(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of the test's own, in the environment of which its endpoint is set."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.make_bucket(f'bucket-{secrets.token_hex(4)}')}/cold"


@pytest.fixture(params=["folder", "bucket"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    is_bucket = request.param == "bucket"
    url = request.getfixturevalue("bucket_url") if is_bucket else f"file://{tmp_path}/objects"
    store = make_objects(url)
    assert store is not None
    return store
