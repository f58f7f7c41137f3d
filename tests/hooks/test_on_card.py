"""What only a card can show: real captures, a real driver, its memory used up, a replay there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from tests.hooks.cards import needs_card
from tests.hooks.placed import CUDA, WIDTH, Trial, check_rows, fused
from tests.hooks.recorder import RecordingLine, stat
from tests.hooks.tiny import tiny_gpt, watched
from torch import Tensor, nn

from runwatch.findings import Verdict
from runwatch.histograms import HistogramKind
from runwatch.nonfinite import is_absent
from runwatch_hooks.device_health import open_sensors
from runwatch_hooks.doctor import examine
from runwatch_hooks.settings.options import Options

pytestmark = needs_card

ROOT: Final = Path(__file__).parents[2]
BUNDLED: Final = ROOT / "tests" / "hooks" / "bundles" / "broken_training.py"


def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
        timeout=300,
        check=False,
    )


def test_a_whole_step_that_is_captured_trains_as_it_does_without_us(line: RecordingLine) -> None:
    def trained(line: RecordingLine | None) -> tuple[list[Tensor], list[float]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True, fused=True)
        x = torch.randn(8, WIDTH, device="cuda")
        watch = None if line is None else watched(model, optimizer, line=line)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss: Tensor = model(x).square().mean()
            torch.autograd.backward(loss)
            optimizer.step()
            return loss.detach()  # a graph that lives on would keep the warm-up's stream

        side = CUDA.Stream()
        side.wait_stream(CUDA.current_stream())
        with CUDA.stream(side):
            for _ in range(3):
                loss = step()
                if watch is not None:
                    watch.step(loss)
        CUDA.current_stream().wait_stream(side)
        graph = CUDA.CUDAGraph()
        with CUDA.graph(graph):
            loss = step()
        losses: list[float] = []
        for _ in range(5):
            graph.replay()
            losses.append(float(loss))
            if watch is not None:
                watch.step(loss)
        if watch is not None:
            watch.finish()
            assert watch.num_faults == 0
        return [one.detach().clone() for one in model.parameters()], losses

    ours, losses = trained(line)
    theirs, _ = trained(None)

    assert all(map(torch.equal, ours, theirs))
    assert line.metric("loss")[3:] == pytest.approx(losses)
    assert len(line.metric("grad_norm")) == 3  # a replay runs none of our Python


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
def test_graphed_parts_of_a_model_are_read_as_others_are(line: RecordingLine) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).cuda()
    sample = torch.randn(8, WIDTH, device="cuda", requires_grad=True)
    graphed: Any = CUDA.make_graphed_callables(plain, (sample,))
    optimizer = torch.optim.SGD(plain.parameters(), lr=1e-2)
    watch = watched(plain, optimizer, line=line)
    norms: list[float] = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = graphed(torch.randn(8, WIDTH, device="cuda")).square().mean()
        torch.autograd.backward(loss)
        squares = [one.grad.square().sum() for one in plain.parameters() if one.grad is not None]
        norms.append(float(torch.stack(squares).sum().sqrt()))
        optimizer.step()
        watch.step(loss)
    watch.finish()

    assert line.metric("grad_norm") == pytest.approx(norms, rel=1e-5)
    assert watch.num_faults == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32:UserWarning")
def test_a_compiled_training_is_read_as_an_eager_one(line: RecordingLine) -> None:
    eager, compiled = (Trial(one, "cuda", options=Options()) for one in (line, RecordingLine()))
    other = compiled._line  # pyright: ignore[reportPrivateUsage]
    watches = [eager.attach(), compiled.attach()]
    compiled.model.forward = torch.compile(compiled.model.forward)  # type: ignore[method-assign]
    for step in range(4):
        eager.step(step)
        compiled.step(step)
    for watch in watches:
        watch.finish()

    assert other is not None
    check_rows(eager, line)
    check_rows(compiled, other)
    assert [watch.num_faults for watch in watches] == [0, 0]


def test_the_driver_tells_how_the_device_is_and_doctor_says_so() -> None:
    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    uuid = str(CUDA.get_device_properties(0).uuid)
    sensors = open_sensors([uuid], interval_s=0.05)
    assert sensors is not None
    read = sensors.take()
    findings = {one.name: one for one in examine({})}

    assert read["gpu_mem"] >= held.numel()
    assert 5.0 < read["gpu_temp"] < 120.0
    assert 0.0 <= read["gpu_util"] <= 1.0
    assert findings["NVML"].verdict is Verdict.GOOD
    assert CUDA.get_device_name(0) in findings["CUDA"].found


_OUT_OF_MEMORY = """
import sys
import torch
from runwatch_hooks import attach

torch.cuda.set_per_process_memory_fraction(0.02)
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with attach(model, optimizer, run="oom", spool=sys.argv[1]) as watch:
    for step in range(20):
        optimizer.zero_grad()
        loss = model(torch.ones(1 if step < 12 else 2**24, 64, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        watch.step(loss)
"""


def test_a_card_that_is_full_ends_the_program_as_it_would_and_the_run_knows(
    tmp_path: Path,
) -> None:
    done = run("-c", _OUT_OF_MEMORY, str(tmp_path / "spool"), cwd=tmp_path)

    assert done.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory" in done.stderr
    spooled = b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    assert b"out_of_memory" in spooled


@pytest.mark.slow
def test_a_bundle_of_a_card_is_replayed_there(tmp_path: Path) -> None:
    folders = [str(tmp_path / "bundles"), str(tmp_path / "spool")]
    job = run(str(BUNDLED), "log", *folders, cwd=tmp_path, TRAINED_ON="cuda")
    assert job.returncode == 0, job.stderr
    (bundle,) = (tmp_path / "bundles").glob("*/step-*")
    arguments = ("-m", "runwatch_hooks.replay", str(bundle), "--program", f"{BUNDLED}:log")
    replay = run(*arguments, "--json", cwd=bundle, TRAINED_ON="cuda")
    assert replay.returncode == 0, replay.stderr
    report = json.loads(replay.stdout)

    assert (report["reproduced"], report["broken"]) == (True, "loss")
    assert (report["culprit"]["module"], report["culprit"]["module_type"]) == ("planted", "Log")


def test_histograms_and_activations_are_those_of_the_host(line: RecordingLine) -> None:
    lines = {"cuda": line, "cpu": RecordingLine()}
    for device, ours in lines.items():
        model = tiny_gpt().to(device)
        for block in model.blocks:
            block.get_submodule("dropout").p = 0.0  # type: ignore[assignment]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        options = Options(histograms=1, activations=1)
        watch = watched(model, optimizer, line=ours, options=options)
        tokens = torch.arange(9, device=device).expand(4, 9)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(tokens[:, :-1], tokens[:, 1:])
            torch.autograd.backward(loss)
            optimizer.step()
            watch.step(loss)
        watch.finish()
        assert watch.num_faults == 0

    found = {device: _counts(ours) for device, ours in lines.items()}
    for kind in (HistogramKind.GRADIENTS, HistogramKind.WEIGHTS):
        there, here = found["cuda"][kind], found["cpu"][kind]
        assert there.shape == here.shape
        # Rounding moves an element here and there over the border of its bin.
        assert np.abs(there - here).sum() <= 0.02 * here.sum()
    told = {device: _activations(ours) for device, ours in lines.items()}
    np.testing.assert_allclose(told["cuda"], told["cpu"], rtol=1e-3, atol=1e-5)


def _counts(line: RecordingLine) -> dict[HistogramKind, Any]:
    held: dict[HistogramKind, list[Any]] = {}
    for row in line.rows:
        for one in row.histograms:
            held.setdefault(one.kind, []).append(one.counts())
    return {kind: np.concatenate(counts) for kind, counts in held.items()}


def _activations(line: RecordingLine) -> Any:
    rows = [row for row in line.rows if row.layout and "act_mean" in row.layout.stats]
    found = np.stack([stat(row, name) for row in rows for name in ("act_mean", "act_std")])
    assert not is_absent(found).all()
    return found


def test_memory_of_the_card_is_flat_over_many_steps(line: RecordingLine) -> None:
    trial = Trial(line, "cuda", make=fused, options=Options(guard="outliers"))
    watch = trial.attach()
    held: list[int] = []
    for step in range(300):
        trial.step(step)
        trial.expected.clear()
        trial.losses.clear()
        if step in (50, 299):
            CUDA.synchronize()
            held.append(CUDA.memory_allocated())
    watch.finish()

    assert held[0] == held[1]
    assert watch.num_faults == 0
