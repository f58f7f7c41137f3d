"""The trainer's side of `runwatch doctor`."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

import runwatch
import runwatch_hooks
from runwatch.findings import Finding, Verdict
from runwatch_hooks.doctor import examine
from runwatch_hooks.doctor.accelerators import accelerators
from runwatch_hooks.doctor.examination import check_environment, check_spool
from runwatch_hooks.oldest_versions import OLDEST
from runwatch_hooks.plain import open_run

torch = pytest.importorskip("torch")

FACTORIES = """
import torch
from torch import nn

def plain():
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))

def with_optimizer():
    model = plain()
    groups = [{"params": model[0].parameters()}, {"params": model[1].parameters()}]
    return model, torch.optim.AdamW(groups)

def breaks():
    raise RuntimeError("no weights here")

def number():
    return 7
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of model factories."""
    name = "factories_of_doctor"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(FACTORIES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def of_model(place: str) -> list[Finding]:
    return [one for one in examine({}, place) if one.part == "model"]


def test_the_tensors_groups_and_bytes_of_a_model_are_told(factories: str) -> None:
    made, size, cost = of_model(f"{factories}:with_optimizer")

    assert made.found == "4 tensors of 58 parameters (parameter groups: 2), on cpu"
    assert size.found.startswith("96 of 6 stats; ")
    assert cost.verdict is Verdict.GOOD
    assert "steps" in cost.found


def test_measuring_leaves_no_run_and_no_change_in_the_environment(
    factories: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WORLD_SIZE", "8")

    assert of_model(f"{factories}:plain")[0].verdict is Verdict.GOOD
    assert os.environ["RUNWATCH_URL"] == "http://127.0.0.1:9"
    assert os.environ["WORLD_SIZE"] == "8"
    assert not (tmp_path / "runwatch-spool").exists()


def test_a_factory_that_fails_is_told_with_its_own_words(factories: str) -> None:
    (broken,) = of_model(f"{factories}:breaks")
    (wrong,) = of_model(f"{factories}:number")
    (nameless,) = of_model(factories)
    (missing,) = of_model("no_such_module_anywhere:make")

    assert "RuntimeError: no weights here" in broken.found
    assert "gave int, wanted a torch.nn.Module" in wrong.found
    assert "wanted module:factory" in nameless.found
    assert "No module named" in missing.found
    assert {one.verdict for one in (broken, wrong, nameless, missing)} == {Verdict.WRONG}


def test_what_attach_would_refuse_is_wrong() -> None:
    assert check_environment({"RUNWATCH_URL": "localhost"}).verdict is Verdict.WRONG
    assert check_environment({"RUNWATCH_URL": "http://a"}).verdict is Verdict.WRONG  # no key
    assert check_environment({"RUNWATCH_RUN_ID": "7"}).verdict is Verdict.WRONG
    assert check_environment({"RUNWATCH_DISABLED": "1"}).verdict is Verdict.NOTE
    assert check_environment({}).verdict is Verdict.NOTE
    url = "http://me:secret@a:8321/path"
    good = check_environment({"RUNWATCH_URL": url, "RUNWATCH_TOKEN": "secret"})
    assert good.verdict is Verdict.GOOD
    assert good.found == "http://a:8321/path, with a key"


def test_a_run_that_waits_in_the_spool_is_told(tmp_path: Path) -> None:
    assert check_spool(tmp_path / "not yet").verdict is Verdict.GOOD
    with open_run("a run", spool=tmp_path) as run:
        run.step(1.0)

    waiting = check_spool(tmp_path)

    assert waiting.verdict is Verdict.NOTE
    assert re.fullmatch(r"1 spool to be sent, [\d.]+ KiB", waiting.found)


def test_a_spool_that_cannot_be_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert check_spool(tmp_path / "file" / "spool").verdict is Verdict.WRONG


@pytest.fixture
def without_torch(tmp_path: Path) -> str:
    """A PYTHONPATH on which a trainer finds ours and what that requires, and no torch."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for name in OLDEST:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        for part in Path(spec.origin or "").parents[1].glob(f"{name}*"):
            (folder / part.name).symlink_to(part)
    ours = [Path(package.__file__ or "").parents[1] for package in (runwatch, runwatch_hooks)]
    return os.pathsep.join(map(str, (folder, *ours)))


def test_without_torch_the_other_way_is_shown(without_torch: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "runwatch_hooks.doctor", "--json", "--model", "a:b"],
        env={**os.environ, "PYTHONPATH": without_torch},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found = {one.name: one for one in msgspec.json.decode(done.stdout, type=list[Finding])}

    assert found["torch"].verdict is Verdict.NOTE
    assert "plain.open_run" in found["torch"].advice
    assert found["a:b"].found == "torch: not installed"
    assert [name for name, one in found.items() if one.verdict is Verdict.WRONG] == ["a:b"]


def test_devices_of_amd_are_told_as_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", "MI300X {}".format)
    found = {finding.name: finding.found for finding in accelerators()}

    assert found["CUDA"] == "ROCm 7.1 on MI300X 0, MI300X 1; gradients are read on the device"
