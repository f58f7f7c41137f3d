"""A resume that forgot the scheduler's state is told from one that has nothing to restore."""

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, StepLR


class Job:
    """A loop that steps its scheduler every so many steps, before or after its row is closed."""

    def __init__(self, line: RecordingLine, step: int, *, counts_epochs: bool = False) -> None:
        self.model = nn.Linear(2, 1)
        self.optimizer = SGD(self.model.parameters(), 1e-3)
        self.scheduler: LRScheduler = (
            StepLR(self.optimizer, 2) if counts_epochs else CosineAnnealingLR(self.optimizer, 1000)
        )
        self.every = 40 if counts_epochs else 1
        self.watch = watched(self.model, self.optimizer, line=line, schedulers=(self.scheduler,))
        self.watch.load_state_dict({**self.watch.state_dict(), "next_step": step})

    def train(self, num_steps: int, *, closes_first: bool = False) -> None:
        for step in range(1, num_steps + 1):
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 2)).sum().backward()
            self.optimizer.step()
            if closes_first:
                self.watch.step(1.0)
            if step % self.every == 0:
                self.scheduler.step()
            if not closes_first:
                self.watch.step(1.0)


@pytest.mark.parametrize("closes_first", [False, True])
def test_a_scheduler_that_begins_anew_is_told_in_the_first_rows_after_a_resume(
    line: RecordingLine, *, closes_first: bool
) -> None:
    Job(line, 500).train(70, closes_first=closes_first)

    assert line.metric("fresh_schedulers") == [1.0] * (64 - closes_first) + [0.0]


def test_one_that_is_restored_after_the_attaching_is_healthy(line: RecordingLine) -> None:
    job = Job(line, 500)
    job.scheduler.load_state_dict({**job.scheduler.state_dict(), "last_epoch": 500})
    job.train(3)

    assert len(line.rows) == 3
    assert line.metric("fresh_schedulers") == []


def test_a_beginning_has_none_to_restore(line: RecordingLine) -> None:
    Job(line, 0).train(3)

    assert len(line.rows) == 3
    assert line.metric("fresh_schedulers") == []


def test_of_one_that_counts_epochs_nothing_is_known(line: RecordingLine) -> None:
    Job(line, 10, counts_epochs=True).train(90)

    assert len(line.rows) == 90
    assert line.metric("fresh_schedulers") == []
