"""The line to the service cut under a training: no step waits for it, the spool takes what cannot
be sent, and all of it arrives when the line is mended."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
import torch
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Grew, History, Waited
from tests.faults.recording import note_stored
from tests.faults.recording_proxy import recording_proxy
from tests.waiting import until
from torch import nn

from runwatch_hooks import Watch, attach

pytestmark = pytest.mark.heavy

_STEPS: Final = 150
"""In each of three parts: before the cut, while it lasts, and after it."""
_AT_MOST_S: Final = 9.0
"""A step that waited for an answer would wait for its time-out, 10 s and more; what is below
that may be this machine's doing."""
_SPOOL_BYTES: Final = 32 * 2**20


class Training:
    def __init__(self, watch: Watch, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.watch = watch
        self.longest_s = 0.0
        self._model = model
        self._optimizer = optimizer

    def train(self, num_steps: int) -> None:
        for _ in range(num_steps):
            loss = self._model(torch.randn(8, 4)).square().mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            began = time.monotonic()
            self.watch.step(loss)
            self.longest_s = max(self.longest_s, time.monotonic() - began)


def test_a_cut_line_holds_up_no_step_and_loses_none(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    service = RealService(tmp_path / "service")
    service.start()
    key = service.create_key("ingest")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        with recording_proxy(service.url, history) as proxy:
            watch = attach(
                model, optimizer, run="cut", url=proxy.url, token=key, spool=tmp_path / "spool"
            )
            training = Training(watch, model, optimizer)
            training.train(_STEPS)
            until(lambda: num_stored(service, watch.run_id) >= _STEPS)
            proxy.cut()
            training.train(_STEPS)
            until(lambda: proxy.num_cut > 0)
            training.train(_STEPS)
            spooled = sum(one.stat().st_size for one in watch_files(tmp_path / "spool"))
            proxy.mend()
            until(lambda: num_stored(service, watch.run_id) >= 3 * _STEPS)
            watch.finish()
        path = f"/runs/{watch.run_id}/series?metric=loss&points=1000"
        assert service.ask("GET", path)["steps"] == list(range(3 * _STEPS))
        history.note(Waited(training.longest_s, _AT_MOST_S))
        history.note(Grew("spool", spooled, _SPOOL_BYTES))
        history.note_log(service.log, key)
        note_stored(history, service, [watch.run_id])
    finally:
        service.stop()
    assert violations(history) == []


def num_stored(service: RealService, run_id: str) -> int:
    """Steps in the frames of a run; none while it is not known yet."""
    with closing(sqlite3.connect(f"file:{service.database}?mode=ro", uri=True)) as database:
        summed = "SELECT coalesce(sum(num_steps), 0) FROM frames WHERE run_id = ?"
        ((number,),) = database.execute(summed, (run_id,))
    return int(number)


def watch_files(spool: Path) -> list[Path]:
    """Nothing is removed from it while nothing is acknowledged."""
    return [path for path in spool.rglob("*") if path.is_file()]
