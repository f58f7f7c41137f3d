"""What is too old is named with its version, wherever it is found first."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import runwatch
import runwatch_hooks
from runwatch.findings import Finding, Verdict
from runwatch_hooks.doctor.examination import version_of
from runwatch_hooks.oldest_versions import fault_of_version

OURS = [Path(package.__file__ or "").parents[1] for package in (runwatch, runwatch_hooks)]
TOO_OLD = "runwatch needs torch 2.6 or later, found 2.2.2"


@pytest.mark.parametrize("found", ["2.6.0+cu124", "2.10.0a0+git1", "3.0", "2.6", "unknown"])
def test_a_version_that_is_new_enough_or_says_nothing_is_taken(found: str) -> None:
    assert fault_of_version("torch", found, "2.6") is None


@pytest.mark.parametrize("found", ["2.5.1", "2.2.2", "1.13.1+cpu", "2"])
def test_an_older_version_is_named(found: str) -> None:
    wanted = f"runwatch needs torch 2.6 or later, found {found}"

    assert fault_of_version("torch", found, "2.6") == wanted


def test_a_package_that_is_too_old_is_wrong() -> None:
    old, new = version_of("numpy", "1.25.2", "1.26"), version_of("numpy", "2.0", "1.26")

    assert (old.verdict, new.verdict) == (Verdict.WRONG, Verdict.GOOD)
    assert old.found == "runwatch needs numpy 1.26 or later, found 1.25.2"
    assert old.advice == "pip install 'numpy>=1.26'"


@pytest.fixture
def old_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch is of an older version, and has nothing of what we ask for."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('__version__ = "2.2.2+cu121"\n')
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, *OURS)))}


@pytest.mark.parametrize(
    "line",
    [
        "from runwatch_hooks import attach",
        "import runwatch_hooks.attaching",
        "import runwatch_hooks.adapters.huggingface",
        "import runwatch_hooks.replay",
    ],
)
def test_importing_beside_an_older_torch_says_so(line: str, old_torch: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", line], env=old_torch, capture_output=True, text=True, check=False
    )

    assert done.stderr.splitlines()[-1] == f"ImportError: {TOO_OLD}+cu121"


def test_the_doctor_calls_an_older_torch_wrong(old_torch: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runwatch_hooks.doctor", "--json", "--model", "a:b"],
        env=old_torch,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {one.name: one for one in msgspec.json.decode(done.stdout, type=list[Finding])}

    assert done.returncode == 1
    assert (found["torch"].verdict, found["torch"].found) == (Verdict.WRONG, f"{TOO_OLD}+cu121")
    assert found["a:b"].found == f"torch: {TOO_OLD}+cu121"


@pytest.mark.slow
def test_a_fault_in_what_is_imported_late_is_shown_with_its_cause() -> None:
    program = "import torch; del torch.Event; from runwatch_hooks import attach"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    cause = "AttributeError: module 'torch' has no attribute 'Event'"
    assert done.stderr.splitlines()[-1] == f"ImportError: cannot import attach: {cause}"
