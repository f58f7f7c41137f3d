"""A program whose loop does not leave, or go back, is told so, once; one that asks is not."""

import math
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import tiny_gpt, watched
from torch.optim import SGD

from runwatch.commands import AnyAction, Command, Rollback, Stop
from runwatch.vocabulary import CommandId
from runwatch_hooks.loop import PATIENCE_STEPS
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.watch import StepReport

ASKS_WHETHER: dict[str, Callable[[LiveWatch, StepReport], bool]] = {
    "by the report": lambda watch, report: report.stop,
    "by the watch": lambda watch, report: watch.is_stopping,
}
ASKS_WHERE: dict[str, Callable[[LiveWatch, StepReport], int | None]] = {
    "by the report": lambda watch, report: report.rolled_back_to,
    "by the watch": lambda watch, report: watch.next_step,
    "by steps": lambda watch, report: next(watch.steps(1000)),
    "by batches": lambda watch, report: next(watch.batches([2])),
}


def ordered(line: RecordingLine, action: AnyAction) -> LiveWatch:
    """A run of three steps that is told to do something at the boundary of the next."""
    model = tiny_gpt()
    options = Options(allow=("rollback", "stop"), snapshot_every=1, snapshots=9, good_after=1)
    watch = watched(model, SGD(model.parameters(), lr=0.1), line=line, options=options)
    for _ in range(3):
        watch.step(1.0)
    line.commands = [Command(CommandId("c1"), action, attempt=1, expires_at=math.inf)]
    return watch


def told(line: RecordingLine) -> list[tuple[int, str]]:
    """By the step, and the word that names what is not done."""
    found = [(one.step, str(one.detail["what"])) for one in line.events if one.kind == "unheeded"]
    return [(step, what.split(",")[0]) for step, what in found if what.startswith("the run ")]


def test_a_loop_that_goes_on_after_a_stop_is_told_once(line: RecordingLine) -> None:
    watch = ordered(line, Stop())

    for _ in range(3 * PATIENCE_STEPS):
        watch.step(1.0)

    assert told(line) == [(3 + PATIENCE_STEPS, "the run was asked to stop")]


def test_a_loop_that_goes_on_by_itself_after_a_rollback_is_told_once(line: RecordingLine) -> None:
    watch = ordered(line, Rollback(to_step=1))
    for _ in range(2 * PATIENCE_STEPS):
        watch.step(1.0)
    again = Rollback(to_step=2 * PATIENCE_STEPS)
    line.commands = [Command(CommandId("c2"), again, attempt=1, expires_at=math.inf)]

    for _ in range(2 * PATIENCE_STEPS):
        watch.step(1.0)

    assert [receipt.state for receipt in line.receipts] == ["applied", "applied"]
    assert told(line) == [(1 + PATIENCE_STEPS, "the run was rolled back")]


@pytest.mark.parametrize("name", ASKS_WHETHER)
def test_a_program_that_asks_whether_to_stop_is_told_nothing(
    name: str, line: RecordingLine
) -> None:
    watch = ordered(line, Stop())

    asked = [ASKS_WHETHER[name](watch, watch.step(1.0)) for _ in range(2 * PATIENCE_STEPS)]

    assert all(asked)
    assert told(line) == []


@pytest.mark.parametrize("name", ASKS_WHERE)
def test_a_program_that_asks_where_it_went_back_to_is_told_nothing(
    name: str, line: RecordingLine
) -> None:
    watch = ordered(line, Rollback(to_step=1))

    assert ASKS_WHERE[name](watch, watch.step(1.0)) == 2
    for _ in range(2 * PATIENCE_STEPS):
        watch.step(1.0)

    assert told(line) == []


def test_passes_over_a_loader_that_a_loop_begins_again_and_again_are_no_leaving(
    line: RecordingLine,
) -> None:
    watch = ordered(line, Stop())

    for _ in range(2 * PATIENCE_STEPS):
        for _ in watch.batches(range(10)):
            watch.step(1.0)

    assert told(line) == [(3 + PATIENCE_STEPS, "the run was asked to stop")]


def test_a_report_that_notes_its_readers_is_a_report(line: RecordingLine) -> None:
    report = ordered(line, Stop()).step(1.0)

    copies = [pickle.loads(pickle.dumps(report)), replace(report, step=3)]

    assert isinstance(report, StepReport)
    assert [(one.step, one.stop, one.rolled_back_to) for one in copies] == [(3, True, None)] * 2
    assert "stop=True" in repr(report)
