"""The compiled library loads where it can be compiled, and the hook says so where it does not."""

import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.hooks.statistics.one_pass_here import COMPILER, one_pass_here

from runwatch_hooks.statistics.gradient_sums import (
    LIBRARY,
    NoOnePassError,
    OnePassOpener,
    find_one_pass,
    load_one_pass,
)

SOURCE = LIBRARY.with_name("one_pass.c")


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    """A library as of an earlier version of its source."""
    if shutil.which(COMPILER) is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text(SOURCE.read_text().replace("#define VERSION ", "#define VERSION 1000"))
    command = [COMPILER, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return library


def test_it_loads_where_there_is_a_compiler() -> None:
    assert one_pass_here() is not None


def test_one_of_another_version_is_not_used_and_its_version_is_named(stale: Path) -> None:
    assert load_one_pass(stale) is None
    with pytest.raises(NoOnePassError, match=r"old\.so is of version 1000\d+, wanted \d+"):
        find_one_pass(stale)


def test_one_that_is_missing_or_none_of_ours_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")

    with pytest.raises(NoOnePassError, match=r"none\.so was not compiled"):
        find_one_pass(tmp_path / "none.so")
    with pytest.raises(NoOnePassError, match=r"text\.so cannot be loaded"):
        find_one_pass(tmp_path / "text.so")


def test_the_slower_way_is_logged_once_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = OnePassOpener(tmp_path / "none.so")
    with caplog.at_level(logging.WARNING):
        assert [opened(), opened()] == [None, None]

    [message] = caplog.messages
    assert "read in a slower way: none.so was not compiled" in message


def test_nothing_is_logged_where_it_loads(caplog: pytest.LogCaptureFixture) -> None:
    one_pass_here()
    with caplog.at_level(logging.DEBUG):
        assert OnePassOpener()() is not None

    assert caplog.messages == []
