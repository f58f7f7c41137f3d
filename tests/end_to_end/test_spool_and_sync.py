"""A service that is absent, or dies in between: the run trains on, and no step is missing."""

import math
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest
import torch
from tests.end_to_end.real_service import RealService
from tests.faults.cutting_proxy import cutting_proxy
from tests.hooks.uplink.factories import ATTEMPT, LAYOUT, row, started
from tests.waiting import LONGEST_S, until
from torch import nn

from runwatch.layouts import Layer, Layout
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks import Watch, attach
from runwatch_hooks.sync import main
from runwatch_hooks.uplink import Uplink
from runwatch_hooks.uplink.spool import SpoolFolder

pytestmark = pytest.mark.slow

OTHER_LAYOUT = Layout((Layer("wte.weight"), Layer("lm_head.weight")), LAYOUT.stats)


def train(
    watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int
) -> list[float]:
    """The losses, one a step."""
    generator = torch.Generator().manual_seed(0)
    losses: list[float] = []
    for _ in range(steps):
        loss = model(torch.randn(8, 4, generator=generator)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
        losses.append(loss.detach().item())
    return losses


def trained(spool: Path, url: str, token: str, steps: int) -> tuple[Watch, list[float]]:
    """A run that has not said its end, and its losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = attach(model, optimizer, run="tiny", url=url, token=token, spool=spool)
    return watch, train(watch, model, optimizer, steps)


def stored_losses(service: RealService, run_id: RunId) -> dict[int, float]:
    series = service.ask("GET", f"/runs/{run_id}/series?metric=loss&points=10000")
    return dict(zip(series["steps"], series["values"], strict=True))


def sync(spool: Path, service: RealService) -> int:
    return main([str(spool), "--url", service.url, "--patience", "20"])


def test_a_run_that_never_saw_a_service_is_brought_in_whole(
    tmp_path: Path, service: RealService, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    watch, losses = trained(spool, service.url, "no-key-yet", 200)
    watch.finish()
    service.start()
    monkeypatch.setenv("RUNWATCH_TOKEN", service.create_key("ingest"))

    assert sync(spool, service) == 0
    stored = stored_losses(service, watch.run_id)
    assert list(stored) == list(range(200))
    assert all(math.isclose(stored[step], losses[step], rel_tol=1e-6) for step in stored)
    assert service.ask("GET", f"/runs/{watch.run_id}")["state"] == "finished"
    assert list(spool.iterdir()) == []


def test_a_live_run_arrives_whole(tmp_path: Path, service: RealService) -> None:
    service.start()
    token = service.create_key("ingest")
    watch, losses = trained(tmp_path / "spool", service.url, token, 200)
    until(partial(has_stored, service, 199))
    watch.finish()

    assert list(stored_losses(service, watch.run_id)) == list(range(len(losses)))
    assert service.ask("GET", f"/runs/{watch.run_id}")["state"] == "finished"
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_service_that_dies_while_a_spool_comes_in_gets_the_rest_later(
    tmp_path: Path, service: RealService
) -> None:
    spool = tmp_path / "spool"
    transport = started(spool)
    for step in range(240):  # layouts that change make a frame of each step
        layout = OTHER_LAYOUT if step % 2 else LAYOUT
        transport.put_row(row(step, metrics={"loss": float(step)}, layout=layout))
    transport.close("finished")
    service.start()
    token = service.create_key("ingest")
    answers = count(1)

    def dies() -> bool:
        """In the middle of what it does, and is there again for who asks once more."""
        if next(answers) not in (1, 60, 120):
            return False
        service.kill()
        service.start()
        return True

    with cutting_proxy(service.port, dies) as proxy:
        environment = os.environ | {"RUNWATCH_TOKEN": token, "RUNWATCH_URL": proxy.url}
        patience = ("--patience", str(LONGEST_S))
        program = [sys.executable, "-m", "runwatch_hooks.sync", str(spool), *patience]
        syncing = subprocess.run(
            program, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=LONGEST_S
        )

    assert syncing.returncode == 0
    assert next(answers) > 120
    stored = stored_losses(service, transport.run_id)
    assert stored == {step: float(step) for step in range(240)}


def has_stored(service: RealService, num_steps: int) -> bool:
    return any((run["last_step"] or 0) >= num_steps for run in service.ask("GET", "/runs")["runs"])


def test_a_service_killed_five_times_in_mid_run_holds_every_step_once(
    tmp_path: Path, service: RealService
) -> None:
    service.start()
    token = service.create_key("ingest")
    transport = started(tmp_path / "spool", service.url, token=token)
    for killing in range(5):
        first_step = 200 * killing
        train_rows(transport, range(first_step, first_step + 100))
        until(partial(has_stored, service, first_step + 99))
        train_rows(transport, range(first_step + 100, first_step + 150))
        service.kill()
        train_rows(transport, range(first_step + 150, first_step + 200))
        service.start()
    transport.close("finished", timeout_s=LONGEST_S)

    stored = stored_losses(service, transport.run_id)
    assert stored == {step: float(step) for step in range(1000)}
    assert transport.num_dropped_rows == 0


def train_rows(transport: Uplink, steps: Iterable[int]) -> None:
    for step in steps:
        transport.put_row(row(step, metrics={"loss": float(step)}))


def test_what_one_life_could_not_send_comes_in_with_the_next(
    tmp_path: Path, service: RealService
) -> None:
    service.start()
    token = service.create_key("ingest")
    first = started(tmp_path / "spool", service.url, token=token)
    train_rows(first, range(100))
    until(partial(has_stored, service, 99))
    service.kill()
    train_rows(first, range(100, 200))
    first.close("failed", timeout_s=0.1)
    until(lambda: not is_held(first.spool_path))
    service.start()
    opened = msgspec.structs.replace(ATTEMPT, token=ulid(1_800_000_000_000, b"0123456789"))
    second = started(tmp_path / "spool", service.url, token=token, attempt=opened)
    train_rows(second, range(200, 250))
    until(lambda: not first.spool_path.exists())
    second.close("finished", timeout_s=LONGEST_S)

    run = service.ask("GET", f"/runs/{second.run_id}")
    assert (run["state"], run["current_attempt"]) == ("finished", 2)
    assert stored_losses(service, second.run_id) == {step: float(step) for step in range(250)}


def is_held(spool: Path) -> bool:
    folder = SpoolFolder(spool)
    try:
        folder.lock()
    except BlockingIOError:
        return True
    folder.close()
    return False
