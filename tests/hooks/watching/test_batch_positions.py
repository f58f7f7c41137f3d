"""A loader that a rollback positions: the same batches again, but for those that went wrong."""

from collections.abc import Iterator

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import (  # type: ignore[import-untyped]
    StatefulDataLoader,
)

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.loop import BatchPositions
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options

# torchdata 0.11 calls it when a loader is made.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

ROWS = 80


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> int:
        return index


class Run:
    """Trains on pairs of numbers, and writes down which."""

    def __init__(self, *, positioned: bool, per_step: int = 1) -> None:
        torch.manual_seed(3)
        self.line = RecordingLine()
        self.per_step = per_step
        rows = Rows()
        self.loader: DataLoader[int] | StatefulDataLoader[int]
        if positioned:
            self.loader = StatefulDataLoader(rows, batch_size=2, shuffle=True)
        else:
            self.loader = DataLoader(rows, batch_size=2, shuffle=True)
        self.trained: list[tuple[int, list[int]]] = []
        model = nn.Linear(1, 1)
        objects = Objects(
            modules={"": model},
            optimizers=[torch.optim.SGD(model.parameters(), lr=0.0)],
            extra={"dataloader": self.loader} if positioned else {},  # type: ignore[dict-item]
        )
        options = Options(allow=("rollback",), snapshot_every=4, good_after=1)
        self.watch: LiveWatch = build_watch(objects, options, self.line.open, TEAM)

    def train(self, *, rolls_back_after: int, before_step: int, to_step: int | None = None) -> None:
        """One pass, with a rollback after a step, once."""
        rows: list[int] = []
        for batch in self.watch.batches(self.loader):
            rows += batch.tolist()
            if len(rows) < 2 * self.per_step:
                continue
            step, trained = self.watch.next_step, rows
            rows = []
            if step == rolls_back_after:
                action = Rollback(before_step=before_step, to_step=to_step)
                self.line.commands.append(Command(CommandId("c1"), action, 1, 1e12))
            self.trained.append((step, trained))
            self.watch.step(1.0)

    def first(self, step: int) -> list[int]:
        """What a step was trained on the first time."""
        return next(rows for number, rows in self.trained if number == step)

    def last(self, step: int) -> list[int]:
        return next(rows for number, rows in reversed(self.trained) if number == step)


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for run in made:
        run.watch.finish()


@pytest.mark.parametrize("per_step", [1, 2])
def test_the_batches_come_again_without_those_of_the_faulty_step(
    runs: list[Run], per_step: int
) -> None:
    run = Run(positioned=True, per_step=per_step)
    runs.append(run)

    run.train(rolls_back_after=12, before_step=10)

    assert [step for step, _ in run.trained][13:16] == [8, 9, 10]
    assert [run.last(8), run.last(9)] == [run.first(8), run.first(9)]
    assert [run.last(10), run.last(11)] == [run.first(11), run.first(12)]
    left_out = set(run.first(10))
    kept = [row for step in range(run.watch.next_step) for row in run.last(step)]
    assert sorted(kept) == sorted(set(range(ROWS)) - left_out)
    told = [event for event in run.line.events if event.kind == "batches_left_out"]
    assert [event.detail for event in told] == [{"of_step": 10, "batches": per_step}]


def test_of_a_chosen_state_too_the_batches_of_the_faulty_step_are_left_out(
    runs: list[Run],
) -> None:
    run = Run(positioned=True)
    runs.append(run)

    run.train(rolls_back_after=12, before_step=10, to_step=3)

    assert [step for step, _ in run.trained][13:15] == [4, 5]
    assert run.last(4) == run.first(4)
    assert set(run.first(10)).isdisjoint(row for _, rows in run.trained[13:] for row in rows)


def test_a_loader_that_cannot_be_positioned_goes_on_and_it_is_said(runs: list[Run]) -> None:
    run = Run(positioned=False)
    runs.append(run)

    run.train(rolls_back_after=12, before_step=10)

    assert len(run.trained) == ROWS // 2
    assert sorted(row for _, rows in run.trained for row in rows) == list(range(ROWS))
    (told,) = [event for event in run.line.events if event.kind == "unwatched"]
    assert "cannot be positioned" in str(told.detail["what"])


def test_a_loader_that_a_later_step_begins_with_is_followed_from_there() -> None:
    course = BatchPositions()
    for step in range(5):
        course.end_step(step)
    batches = course.over(range(100))
    for step in range(5, 10):
        next(batches)
        course.end_step(step)

    num_left_out = course.go_back(7, fault_step=8)

    assert num_left_out == 1
