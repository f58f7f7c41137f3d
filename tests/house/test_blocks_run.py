"""The blocks of code that the documents show are carried out, page by page, as a reader would.

They run in their order, against a real service: the one that the page starts, or where it starts
none, one whose address and key are in the environment. Before a block that cannot be run here
stands a comment, `<!-- not run: why -->`; without one it is run. A block that the words before it
name (`mine.yaml`:) is that file.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.house import documents, reader
from tests.house.session import Session

RUN: Final = ("python", "sh", "console")
SHOWN: Final = ("text", "yaml")
"""What is looked at, or given to the blocks that run: no program."""
NOT_RUN: Final = ["docs/deploy.md"]
"""May shrink: its containers want a docker daemon."""
DATABASE: Final = "postgresql://runwatch@db.example.com/runwatch"
"""The documents' PostgreSQL."""

BLOCKS: Final = documents.blocks()
PAGES: Final = sorted(
    {block.page for block in BLOCKS if block.language in RUN and block.why_not_run is None}
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    with RealService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def place(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder and the environment in which the reader works."""
    reader.files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    # Only that they begin: the demo has a test of its own, and the tests are the tests.
    monkeypatch.setenv("DEMO_OPTIONS", "--help")
    monkeypatch.setenv("TEST_OPTIONS", "tests/core/test_ulids.py")
    monkeypatch.setenv("WORKERS", "0")
    monkeypatch.setenv("PET_STANDALONE", "1")  # torchrun: a port of its own
    if page.parent == documents.ROOT:
        reader.checkout(tmp_path)
    return tmp_path


@pytest.fixture
def stand_ins(page: Path, place: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """What only a reader's machine takes, and what is typed here."""
    found = {
        "runwatch tail $RUN": "runwatch tail $RUN --once",  # a look at what goes on would go on
        "/etc/runwatch/": f"{place}/etc/",
        "s3://bucket/prefix": f"file://{place}/bucket",
        "--host 0.0.0.0": "--host 127.0.0.1",
        "/path/to/checkout": "runwatch",  # which is installed, so that nothing is left to be done
    }
    if DATABASE in page.read_text(encoding="utf-8"):
        found[DATABASE] = request.getfixturevalue("postgres_url")
    return found


@pytest.mark.heavy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(documents.ROOT)))
def test_what_a_page_shows_can_be_done(
    page: Path,
    place: Path,
    stand_ins: dict[str, str],
    service: RealService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = [block for block in BLOCKS if block.page == page and block.why_not_run is None]
    with Session(place, stand_ins, monkeypatch) as session:
        if not any(block.is_service for block in blocks):
            session.use(service.url, service.admin_key)
            (place / "runwatch-data").symlink_to(service.database.parent)
        for block in blocks:
            if block.language in RUN or block.file is not None:
                session.follow(block)
        session.finish()


def test_every_block_says_what_it_is() -> None:
    for block in BLOCKS:
        assert block.language in {*RUN, *SHOWN}, f"{block.place}: {block.language}"


def test_no_block_is_left_out_but_those_of_containers() -> None:
    left_out = [block for block in BLOCKS if block.why_not_run is not None]

    assert [str(block.page.relative_to(documents.ROOT)) for block in left_out] == NOT_RUN
