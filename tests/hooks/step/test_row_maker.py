"""What the rows of a step say of the state that it left, where their numbers come late."""

# pyright: reportPrivateUsage=false
# (a stand-in takes the place of an accelerator that is behind)

import math
from typing import Any, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM, watched
from torch import nn
from torch.optim import SGD

from runwatch_hooks import ending
from runwatch_hooks.faults import Faults
from runwatch_hooks.reports import Reports
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.open_rows import RowAssembly, RowOutput
from runwatch_hooks.step.own_time import OwnTime, Spans
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.step.row_builder import RowMaker


class LateSpans(Spans):
    """Of an accelerator that is behind the host until it is told to have come."""

    def __init__(self) -> None:
        super().__init__([(0.0, 1.0)])
        self.has_come = False

    def is_there(self) -> bool:
        return self.has_come


class LateOwnTime(OwnTime):
    def __init__(self, faults: Faults) -> None:
        super().__init__(faults)
        self.spans = LateSpans()

    def take(self) -> Spans:
        return self.spans


def late_rows() -> tuple[RowMaker, LateSpans]:
    faults = Faults()
    reports = Reports(faults)
    own_time = LateOwnTime(faults)
    rows = RowMaker(
        Probe({}, [], faults),
        faults,
        reports,
        RowOutput(TEAM, faults, reports.put_row),
        is_leader=True,
        instruments=Instruments(own_time=own_time),
    )
    return rows, own_time.spans


def record(rows: RowMaker, step: int, segment: int, loss: float) -> None:
    rows.record(step, segment, loss, None, {}, lr_scale=1.0)


@pytest.mark.parametrize(("step", "segment"), [(8, 0), (5, 1)])
def test_a_late_row_of_a_broken_step_counts_until_a_rollback_has_undone_it(
    step: int, segment: int
) -> None:
    """Else the state that the run went back to would count as suspect for good."""
    rows, spans = late_rows()
    record(rows, 7, 0, math.nan)
    assert rows.take_health()
    spans.has_come = True
    record(rows, step, segment, 1.0)

    was_undone = segment > 0
    assert rows.take_health() == was_undone


def test_rows_that_do_not_come_by_the_end_are_given_up_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows, spans = late_rows()
    record(rows, 7, 0, 1.0)

    assert not rows.send_last(timeout_s=0.01)
    assert rows.num_lost == 1
    assert "a device has not answered" in caplog.text
    spans.has_come = True
    assert rows.send_last(timeout_s=0.01)
    assert rows.num_lost == 1


def test_a_device_that_hangs_does_not_keep_a_run_from_its_end(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    monkeypatch.setattr(ending, "DEVICE_TIMEOUT_S", 0.01)
    model = nn.Linear(1, 1)
    watch = watched(model, SGD(model.parameters(), lr=0.1), line=line)
    monkeypatch.setattr(watch._rows, "_own_time", LateOwnTime(Faults()))
    watch.step(1.0)
    watch.finish()

    assert line.closed == [("finished", "")]
    assert line.rows == []
    assert watch.num_faults == 0


class Logging:
    """A number that logs another one while it is read, as a thread beside the training may."""

    def __init__(self, watch: LiveWatch) -> None:
        self._watch = watch

    def __float__(self) -> float:
        self._watch.log(beside=1.0)
        return 2.0


def test_a_fault_in_what_is_logged_within_a_row_does_not_switch_off_the_reading_of_gradients(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    watch = watched(model, optimizer, line=line)
    add = RowAssembly.add

    def fail_without_layers(*args: Any, **kwargs: Any) -> None:
        if "beside" in args[4]:
            raise RuntimeError("no room")
        add(*args, **kwargs)

    monkeypatch.setattr(RowAssembly, "add", fail_without_layers)
    for _ in range(2):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        watch.step(cast(float, Logging(watch)))
    watch.finish()

    assert line.metric("loss") == [2.0, 2.0]
    assert [row.metrics["layers_with_grad"] for row in line.rows] == [2.0, 2.0]
    assert watch.num_faults == 2
