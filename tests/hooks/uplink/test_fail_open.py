"""What goes wrong around a trainer costs it nothing, and what was lost is counted."""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.hooks.uplink.factories import row, started, train
from tests.hooks.uplink.stub_service import TOKEN, Fault, StubService, serving
from tests.hooks.uplink.test_sync import sync
from tests.ports import reserved_port
from tests.waiting import until

from runwatch.frames import Frame
from runwatch_hooks.uplink import Uplink

TRAINER = """
import resource, signal, torch
from torch import nn
from runwatch_hooks import attach

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)   # else the kernel ends who writes beyond the limit
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with attach(model, optimizer, run="full-disk", checkpoints="checkpoints") as watch:
    for _ in range(400):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        watch.step(loss)
print("steps", watch.next_step, "faults", watch.num_faults)
"""


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_TOKEN", TOKEN)


def frames(service: StubService) -> list[Frame]:
    return [service.frames[key] for key in sorted(service.frames)]


def segments(uplink: Uplink) -> dict[str, int]:
    """The spool's files and their sizes; the trainer's own thread removes them meanwhile."""
    sizes: dict[str, int] = {}
    for path in uplink.spool_path.glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):
            sizes[path.name] = path.stat().st_size
    return sizes


def has_grown(uplink: Uplink, before: dict[str, int]) -> bool:
    return segments(uplink) != before


def lost_rows(service: StubService) -> int:
    """As the gaps tell it."""
    gaps = [event for frame in frames(service) for event in frame.events if event.kind == "gap"]
    return sum(int(str(gap.detail["lost_rows"])) for gap in gaps)


def test_a_key_that_is_revoked_in_the_middle_costs_no_step(
    tmp_path: Path, service: StubService, caplog: pytest.LogCaptureFixture
) -> None:
    uplink = started(tmp_path, service.url)
    train(uplink, 50)
    until(lambda: len(service.steps) == 50)
    service.fault = Fault.FORBIDDEN
    train(uplink, 50, first_step=50)
    until(lambda: "the API key is refused" in caplog.text)
    uplink.close("finished", timeout_s=2.0)
    assert len(service.steps) == 50

    service.fault = None
    until(lambda: sync(tmp_path, service) == 0)  # once the sender has let go of the spool
    assert service.steps == list(range(100))


def test_a_key_that_is_good_again_brings_the_rest(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    service.fault = Fault.FORBIDDEN
    train(uplink, 50)
    service.fault = None
    uplink.close("finished")

    assert service.steps == list(range(50))


def test_a_long_absence_loses_the_oldest_rows_and_counts_every_one(tmp_path: Path) -> None:
    port = reserved_port()
    uplink = started(tmp_path, f"http://127.0.0.1:{port}", spool_bytes=2**16)
    noise = np.random.default_rng(0)
    for first in range(0, 3000, 100):
        before = segments(uplink)
        for step in range(first, first + 100):
            metrics = {f"noise{i}": float(noise.normal()) for i in range(8)}
            uplink.put_row(row(step, metrics=metrics, urgent=step == first + 99))
        until(functools.partial(has_grown, uplink, before))
    assert sum(segments(uplink).values()) < 2**17
    assert uplink.num_dropped_rows > 0

    with serving(StubService(), port) as service:
        uplink.close("finished")
        assert service.steps[-1] == 2999
        assert service.steps == sorted(set(service.steps))
        assert len(service.steps) + lost_rows(service) == 3000


def test_a_clock_that_steps_back_disturbs_nothing(tmp_path: Path, service: StubService) -> None:
    uplink = started(tmp_path, service.url)
    for step in range(20):
        uplink.put_row(row(step, at=1.7e9 + step - (3600.0 if step >= 10 else 0.0)))
    uplink.close("finished")

    assert service.steps == list(range(20))
    times = np.concatenate([frame.times for frame in frames(service)])
    assert times[10] == 1.7e9 + 10 - 3600.0


@pytest.mark.parametrize("fault", [Fault.NONSENSE, Fault.BUSY, Fault.HANG_UP])
def test_a_service_that_answers_nonsense_for_long_loses_nothing(
    tmp_path: Path, service: StubService, fault: Fault
) -> None:
    service.fault = fault
    uplink = started(tmp_path, service.url)
    train(uplink, 100)
    uplink.close("finished", timeout_s=1.0)
    assert not service.frames

    service.fault = None
    until(lambda: sync(tmp_path, service) == 0)  # once the sender has let go of the spool
    assert service.steps == list(range(100))


@pytest.mark.slow
def test_a_training_on_a_full_disk_goes_on_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRAINER],
        env=os.environ | {"RUNWATCH_SPOOL": str(tmp_path / "spool")},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "steps 400 faults 0\n"
    assert b"cannot be written, so in memory only from now on" in done.stderr
    assert b"rows are lost" in done.stderr
