"""`make install` installs again when what it installed is no longer what the sources say."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
STAMP: Final = ".venv/.installed"
COMPILED: Final = "hooks/runwatch_hooks/statistics/_one_pass.so"
SOURCES: Final = (
    "pyproject.toml",
    "constraints.txt",
    "watchdog/runwatch/__init__.py",
    "hatch_build.py",
    "hooks/runwatch_hooks/statistics/one_pass.c",
    "hooks/runwatch_hooks/statistics/gradient_sums.py",
)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile beside sources that were installed after their last change."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for at, name in enumerate((*SOURCES, COMPILED, STAMP)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000.0, 2000.0 if at == len(SOURCES) + 1 else 1000.0))
    return tmp_path


def is_installed(checkout: Path, **variables: str) -> bool:
    """Whether `make install` would do nothing."""
    given = [f"{name}={value}" for name, value in variables.items()]
    command = ["make", "--question", "install", *given]
    environment = {name: value for name, value in os.environ.items() if name != "RUNWATCH_PURE"}
    done = subprocess.run(command, cwd=checkout, env=environment, check=False, timeout=60)
    assert done.returncode in (0, 1)
    return done.returncode == 0


def test_what_is_newer_than_its_sources_stays(checkout: Path) -> None:
    assert is_installed(checkout)


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_has_changed_is_installed_again(checkout: Path, source: str) -> None:
    os.utime(checkout / source, (3000.0, 3000.0))

    assert not is_installed(checkout)


def test_a_compiled_file_that_is_missing_is_made_again_where_it_can_be(checkout: Path) -> None:
    (checkout / COMPILED).unlink()

    assert not is_installed(checkout, CC="true")  # any program: it is looked for, and not run
    assert is_installed(checkout, CC="no-such-compiler")
    assert is_installed(checkout, CC="true", RUNWATCH_PURE="1")
