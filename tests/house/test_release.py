"""What would be published: a wheel and an sdist, each installed into an environment of its own.

    make release

Dependencies come from the registry that pip knows; where there is none the test says so and is
skipped.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import runwatch

ROOT: Final = Path(__file__).parents[2]
OF_TRAINERS: Final = {"msgspec", "numpy", "runwatch", "urllib3"} | (
    {"zstandard"} if sys.version_info < (3, 14) else set()
)
"""All that a trainer installs beside its own torch."""
MINI_RUN: Final = """
import pathlib, sys
from runwatch_hooks.plain import open_run

with open_run("mini", spool="spool") as run:
    for step in range(3):
        run.step(1.0 / (1 + step), layers={"w": {"grad_norm": 1.0}})
assert run.num_faults == 0
assert list(pathlib.Path("spool").rglob("meta.json")), "nothing was spooled"
assert not {"fastapi", "sqlalchemy", "torch"} & set(sys.modules)
"""
_START_S: Final = 180.0


def run(*command: object, **variables: str) -> str:
    """What a command prints; fails with all that it said."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, which is made from the sdist as registries' users make it, and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    has_registry = subprocess.run(
        [*pip, "download", "--no-deps", "--dest", folder / "probe", "hatchling>=1.27"],
        capture_output=True,
        check=False,
    )
    if has_registry.returncode != 0:
        pytest.skip("pip reaches no registry: nothing can be installed into an empty environment")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    (sdist,) = folder.glob("runwatch-*.tar.gz")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, sdist)
    (wheel,) = folder.glob("runwatch-*.whl")
    return wheel, sdist


def environment(folder: Path, what: str) -> Path:
    """The programs of an empty environment into which `what` was installed."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    pinned = ROOT / "constraints.txt"
    run(programs / "python", "-m", "pip", "install", "--quiet", "-c", pinned, what)
    return programs


def installed(programs: Path) -> set[str]:
    listed = json.loads(run(programs / "python", "-m", "pip", "list", "--format", "json"))
    return {one["name"].lower() for one in listed} - {"pip", "setuptools"}


@pytest.mark.heavy
def test_a_trainer_gets_the_hook_its_types_and_nothing_of_a_service(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, _ = built
    programs = environment(tmp_path / "venv", str(wheel))
    monkeypatch.chdir(tmp_path)

    assert installed(programs) == OF_TRAINERS
    run(programs / "python", "-c", MINI_RUN)
    without = subprocess.run([programs / "runwatch"], capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "pip install '/path/to/checkout[server]'" in without.stderr
    packages = ("runwatch", "runwatch_hooks", "runwatch_migrations", "runwatch_server")
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{name}/py.typed" for name in packages} <= files
    assert "runwatch_server/docs/runbooks/loss-spike.md" in files
    assert f"-{runwatch.__version__}-" in wheel.name


@pytest.fixture
def server(built: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The programs of an environment with the service's part, and the address of one served."""
    _, sdist = built
    programs = environment(tmp_path / "venv", f"{sdist}[server]")
    log = tmp_path / "log"
    serve = [
        str(programs / "runwatch"),
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(serve, stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _START_S
        while (found := re.search(r"listens on (http://\S+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield programs, found[1]
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.heavy
def test_a_service_of_the_sdist_serves(server: tuple[Path, str]) -> None:
    programs, url = server

    assert "torch" not in installed(programs)
    assert run(programs / "runwatch", "--version").strip() == runwatch.__version__
    for path in ("/readyz", "/login", "/docs"):
        with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
            assert answer.status == 200, path


def test_only_pythons_that_were_tried_are_declared() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)

    tried = ["3.11", "3.12", "3.13", "3.14"]
    assert declared == tried, "declare one once benchmarks.stacks has run with it"
