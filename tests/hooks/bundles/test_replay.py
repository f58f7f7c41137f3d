"""A fault planted in a real training, bundled there and found again by `runwatch replay`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from tests.hooks.bundles.broken_training import FAULT_STEP
from tests.hooks.bundles.broken_training import main as train

from runwatch_hooks.bundles import open_bundle
from runwatch_hooks.replay.__main__ import main as replay

_PROGRAM: Final = Path(__file__).with_name("broken_training.py")
_DEADLINE_S: Final = 300


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "RUNWATCH" not in name}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environment, "OMP_NUM_THREADS": "1"},
        timeout=_DEADLINE_S,
        check=False,
    )


def trained(fault: str, folder: Path) -> Path:
    """The one bundle of a training with a fault in it."""
    job = run(str(_PROGRAM), fault, str(folder / "bundles"), str(folder / "spool"), cwd=folder)
    assert job.returncode == 0, job.stderr
    (bundle,) = (folder / "bundles").glob("*/step-*")
    return bundle


def replayed(bundle: Path, function: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = f"{_PROGRAM}:{function}"
    arguments = ("-m", "runwatch_hooks.replay", str(bundle), "--program", program, *options)
    return run(*arguments, cwd=bundle)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fault", "broken", "phase", "module_type", "operation"),
    [
        ("log", "loss", "forward", "Log", "log"),
        ("root", "gradient", "backward", "Root", "SqrtBackward0"),
        ("norm", "gradient", "backward", "Norm", "SqrtBackward0"),
    ],
)
def test_the_module_and_operation_of_a_planted_fault_are_named(
    tmp_path: Path, fault: str, broken: str, phase: str, module_type: str, operation: str
) -> None:
    bundle = trained(fault, tmp_path)
    replay = replayed(bundle, fault, "--json")
    assert replay.returncode == 0, replay.stderr
    report: dict[str, Any] = json.loads(replay.stdout)
    culprit = report["culprit"]

    assert (report["step"], report["state_after_step"]) == (FAULT_STEP, FAULT_STEP - 1)
    assert (report["reproduced"], report["broken"]) == (True, broken)
    assert (culprit["phase"], culprit["module"]) == (phase, "planted")
    assert culprit["module_type"] == module_type
    assert operation in (culprit["operation"], culprit["backward_function"])
    assert "broken_training.py" in culprit["line"]


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Paths, threads and the generator as they were."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("RUNWATCH_URL", raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def bundle_of(fault: str, folder: Path) -> Path:
    train(fault, folder / "bundles", folder / "spool")
    (bundle,) = (folder / "bundles").glob("*/step-*")
    return bundle


@pytest.mark.usefixtures("quiet")
def test_infinities_of_a_mask_are_no_fault_and_a_row_that_is_masked_whole_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of("mask", tmp_path)
    status = replay([str(bundle), "--program", f"{_PROGRAM}:mask"])
    told = capsys.readouterr().out

    assert status == 0
    assert "NaN by _softmax, forward in planted (Mask)" in told


@pytest.mark.usefixtures("quiet")
def test_a_step_that_goes_well_from_another_state_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of("log", tmp_path)
    status = replay([str(bundle), "--program", f"{_PROGRAM}:healed", "--state", "fault", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert status == 1
    assert (report["reproduced"], report["culprit"]) == (False, None)
    assert replay([str(bundle), "--program", f"{_PROGRAM}:log", "--state", "good"]) == 2
    assert "holds no 'good' state" in capsys.readouterr().err


@pytest.mark.usefixtures("quiet")
def test_a_number_that_was_broken_before_anything_ran_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of("given", tmp_path)
    facts = open_bundle(bundle).facts
    status = replay([str(bundle), "--program", f"{_PROGRAM}:given"])

    assert facts.metrics["loss"] == "NaN"
    assert {one.layer for one in facts.order[:2]} == {"last.bias", "last.weight"}
    assert {one.layer for one in facts.order[2:]} == {"first.bias", "first.weight"}
    assert status == 0
    assert "NaN in batch 0, tensor 0, before anything ran" in capsys.readouterr().out


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("of_another_size", "parameter first.weight: found none, wanted [4, 4]"),
        ("that_fails", "no such corpus"),
        ("that_is_not_there", "found no function 'that_is_not_there'"),
    ],
)
def test_a_program_that_does_not_fit_is_told_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str, words: str
) -> None:
    bundle = bundle_of("given", tmp_path)

    assert replay([str(bundle), "--program", f"{_PROGRAM}:{function}"]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_that_is_no_bundle_is_told_from_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay([str(tmp_path), "--program", "some:function"]) == 2
    assert "found no bundle.json" in capsys.readouterr().err
