"""The accelerator's kernel: its arithmetic in Triton's interpreter, and what compiling makes of it.

No card runs it here. Triton decides as it is imported whether it interprets, so each way has a
process of its own.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import device_kernel
from tests.hooks.statistics.kernel_cases import CASES, drawn
from torch import Tensor

from runwatch.nonfinite import is_absent
from runwatch_hooks.faults import Faults
from runwatch_hooks.statistics.gpu_reading import (
    GREATEST,
    NORM,
    NUM_NONFINITE,
    ZERO_SHARE,
    DeviceSamples,
    ForeachReader,
    GradientsOnDevice,
)
from runwatch_hooks.statistics.samples import TorchSamples
from runwatch_hooks.statistics.totals import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def run(program: str, results: Path, **environment: str) -> None:
    variables = {name: value for name, value in os.environ.items() if "TRITON" not in name}
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / program), str(results)],
        env=variables | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = tmp_path_factory.mktemp("interpreted") / "results.pt"
    run("interpreted_kernel.py", results, TRITON_INTERPRET="1")
    return torch.load(results, weights_only=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if metadata.version("triton").startswith("3.2."):
        pytest.skip("Triton 3.2, of torch 2.6, needs ROCm's linker to compile for AMD's cards")
    folder = tmp_path_factory.mktemp("compiled")
    run("compiled_kernel.py", folder / "results.json", TRITON_CACHE_DIR=str(folder / "cache"))
    return json.loads((folder / "results.json").read_text())


def exactly(gradient: Tensor) -> list[float]:
    """What a reading should find, by float64."""
    wide = gradient.float().double()
    finite = wide[wide.isfinite()]
    norm = finite.square().sum().sqrt().float()
    greatest = wide.abs().amax() if wide.numel() else 0.0
    num_zeros = (finite == 0.0).sum()
    num_nonfinite = wide.numel() - finite.numel()
    return [float(norm), float(greatest), num_nonfinite, float(num_zeros / wide.numel())]


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_one_reading_finds_what_float64_finds(interpreted: Any, name: str) -> None:
    expected = torch.tensor([exactly(gradient) for gradient in CASES[name]()]).T
    found: Tensor = interpreted["cases"][name]

    torch.testing.assert_close(found[NORM], expected[NORM], rtol=1e-6, atol=0.0)
    torch.testing.assert_close(
        found[GREATEST], expected[GREATEST], rtol=0.0, atol=0.0, equal_nan=True
    )
    assert torch.equal(found[NUM_NONFINITE], expected[NUM_NONFINITE])
    assert torch.equal(found[ZERO_SHARE], expected[ZERO_SHARE])


@needs_triton
def test_gradients_that_moved_are_read_where_they_are_now(interpreted: Any) -> None:
    first, second, again = interpreted["again"]
    moved = [one + 1.0 for one in drawn(700, 5000)]
    expected = torch.tensor([exactly(gradient) for gradient in moved]).T

    torch.testing.assert_close(second, expected, rtol=1e-6, atol=0.0)
    assert torch.equal(first, again)  # to the bit: sums are added in a fixed order


@needs_triton
def test_tables_of_sets_that_do_not_come_back_are_let_go(interpreted: Any) -> None:
    found, kept = interpreted["by_turns"]
    experts = drawn(*range(100, 1000, 100))
    for turn, reading in zip((0, 1, 2, 3, 0, 4, 5, 6), found, strict=True):
        expected = torch.tensor([exactly(gradient) for gradient in experts[turn : turn + 2]]).T
        torch.testing.assert_close(reading, expected, rtol=1e-6, atol=0.0)

    assert 0 < max(kept) <= 12_000
    assert len(set(kept[2:])) == 1  # as many at the end as at first


@needs_triton
def test_samples_are_followed_as_by_torch(interpreted: Any) -> None:
    found = interpreted["samples"]
    for step in range(3):
        ours, theirs = (found[f"{who}, squares, {step}"] for who in ("ours", "torch's"))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0.0, equal_nan=True)
    for step in range(2):
        ours, theirs = (found[f"{who}, broken, {step}"].numpy() for who in ("ours", "torch's"))
        assert np.isnan(ours).all()
        assert is_absent(ours).tolist() == is_absent(theirs).tolist()

    assert is_absent(found["ours, broken, 0"].numpy()).tolist().count(False) == 2
    moved = found["ours, squares, 0"].isnan().tolist()
    assert moved == [False, True, False, True, True, True, False]


@needs_triton
def test_ratios_are_finished_as_by_torch(interpreted: Any) -> None:
    ours, theirs = (interpreted["ratios"][who] for who in ("ours", "torch's"))

    # By bits, because 'not recorded' is one NaN of many. Other NaN may differ.
    is_nan = torch.logical_and(ours.isnan(), ~torch.from_numpy(is_absent(ours.numpy())))
    assert torch.equal(ours[~is_nan].view(torch.int32), theirs[~is_nan].view(torch.int32))
    assert theirs[is_nan].isnan().all()
    assert not is_absent(theirs[is_nan].numpy()).any()
    known = ~torch.from_numpy(is_absent(ours[UPDATE_RATIO].numpy()))
    assert 0 < known.sum() < len(known)


@needs_triton
def test_what_it_finds_becomes_the_layers_stats(interpreted: Any) -> None:
    stats: Tensor = interpreted["stats"]
    small = exactly(drawn(10)[0])
    transposed = exactly(drawn(600)[0])

    for stat in (GRAD_NORM, GRAD_ABSMAX, NONFINITE, ZERO_FRAC):
        assert is_absent(stats[stat].numpy()).tolist() == [False, True, False]  # one is empty
    assert stats[GRAD_NORM, 0].item() == pytest.approx(small[0] / 2.0, rel=1e-6)
    assert stats[GRAD_NORM, 2].item() == pytest.approx(transposed[0] / 2.0, rel=1e-6)
    assert stats[GRAD_ABSMAX, 2].item() == pytest.approx(transposed[1] / 2.0, rel=1e-6)


@needs_triton
def test_it_compiles_for_cards_of_both_makers_with_wide_loads_where_memory_is_aligned(
    compiled: Any,
) -> None:
    ptx, amdgcn = compiled["assembler"]["ptx"], compiled["assembler"]["amdgcn"]

    # By type, aligned and not; only copies of 16 bytes, past the first cache, have this name.
    assert ["cp.async.cg.shared.global" in text for text in ptx[:8]] == [True, False] * 4
    assert "global_load_dwordx4" in amdgcn[0]
    assert not any(".ftz" in text for text in ptx)  # denormals would be lost
    assert not any("atom.global" in text for text in ptx)
    assert max(compiled["shared"].values()) <= 48 * 1024  # of some cards no program has more


@needs_triton
def test_a_kernel_that_cannot_be_launched_is_told_once_and_foreach_reads(compiled: Any) -> None:
    outcome = compiled["fallen_back"]
    expected = ForeachReader().read(drawn(100, 7))

    assert all(torch.equal(torch.tensor(found), expected) for found in outcome["found"])
    assert outcome["moved"] == pytest.approx([100.0, 7.0])
    assert outcome["faults"] == 2
    assert len(outcome["told"]) == 1
    assert outcome["told"][0].startswith("kernel: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card, and it would be measured")
def test_the_check_for_those_who_have_a_card_says_where_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["device_kernel"])
    device_kernel.main()

    assert capsys.readouterr().out.startswith("No CUDA or ROCm device answers here")


class Breaking:
    """A kernel that works at first."""

    def __init__(self) -> None:
        self.num_readings = 0

    def read(self, flats: object) -> Tensor:
        self.num_readings += 1
        if self.num_readings > 1:
            raise RuntimeError("CUDA error: invalid device function")
        return torch.zeros(4, 2)

    def finish_ratios(self, stats: Tensor, norms: Tensor, sparse_above: Tensor) -> None:
        raise RuntimeError("CUDA error: invalid device function")

    def open_samples(self, tensors: Sequence[Tensor], samples: Sequence[Tensor]) -> DeviceSamples:
        return BreakingSamples(tensors, samples)


class BreakingSamples(TorchSamples):
    """What they remember they cannot compare."""

    def squares(self) -> Tensor:
        raise RuntimeError("CUDA error: invalid device function")


def test_a_kernel_that_fails_later_is_not_asked_again() -> None:
    kernel = Breaking()
    faults = Faults()
    reader = GradientsOnDevice(torch.device("cpu"), faults, lambda device: kernel)
    gradients = drawn(100, 7)
    first, second, third = (reader.read(gradients) for _ in range(3))

    assert not first.any()
    assert torch.equal(second, ForeachReader().read(gradients))
    assert torch.equal(second, third)
    assert (kernel.num_readings, faults.count) == (2, 1)


def test_ratios_are_finished_if_the_kernel_cannot() -> None:
    faults = Faults()
    reader = GradientsOnDevice(torch.device("cpu"), faults, lambda device: Breaking())
    stats = torch.ones(len(STATS), 2)
    reader.finish_ratios(stats, torch.tensor([2.0, 4.0]), torch.full((2,), 0.5))

    assert stats[UPDATE_RATIO].tolist() == [0.5, 0.25]
    assert faults.count == 1


def test_of_a_step_that_could_not_be_compared_no_update_is_told_and_of_the_next_it_is() -> None:
    faults = Faults()
    reader = GradientsOnDevice(torch.device("cpu"), faults, lambda device: Breaking())
    tensors = drawn(100, 7)
    samples = reader.open_samples(tensors, tensors)
    found: list[Tensor] = []
    for _ in range(2):
        samples.remember()
        for one in tensors:
            one.add_(1.0)
        found.append(samples.squares())

    assert found[0].isnan().all()
    assert found[1].tolist() == pytest.approx([100.0, 7.0], rel=1e-5)
    assert faults.count == 1
