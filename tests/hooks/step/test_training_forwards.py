"""Which step a program's logged numbers belong to, by what the program has begun meanwhile."""

import copy
import pickle
import threading
from collections.abc import Callable
from typing import cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.settings.options import Options


class Loop:
    """A training whose steps are taken apart."""

    def __init__(self, line: RecordingLine, options: Options | None = None) -> None:
        torch.manual_seed(0)
        self.line = line
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.watch = watched(self.model, self.optimizer, line=line, options=options)
        self.forward: Callable[[Tensor], Tensor] = self.model
        self.x = torch.ones(1, 3)

    def end(self, loss: Tensor) -> None:
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.watch.step(loss)

    def run(self, num_steps: int = 1) -> None:
        for _ in range(num_steps):
            self.end(self.forward(self.x).sum())

    def steps(self, name: str) -> list[tuple[int, int]]:
        """Step and segment of the rows with a number."""
        return [(row.step, row.segment) for row in self.line.rows if name in row.metrics]


@pytest.fixture
def loop(line: RecordingLine) -> Loop:
    return Loop(line)


def test_before_the_first_step_it_belongs_to_that_one(loop: Loop) -> None:
    loop.watch.log(early=1.0)
    loop.run()

    assert loop.steps("early") == [(0, 0)]


def test_after_a_step_it_belongs_to_that_one_until_the_next_forward_pass(loop: Loop) -> None:
    loop.run()
    loop.watch.log(of_0=1.0)
    assert loop.line.closed_rows == []
    loss = loop.model(loop.x).sum()
    assert loop.line.closed_rows == [(0, 0)]
    loop.watch.log(of_1=1.0)
    loop.end(loss)
    loop.watch.log(also_of_1=1.0)
    loop.watch.finish()

    assert loop.steps("of_0") == [(0, 0)]
    assert loop.steps("of_1") == loop.steps("also_of_1") == [(1, 0)]


def test_the_first_that_is_logged_is_placed_as_well(loop: Loop) -> None:
    loop.run(2)
    loss = loop.model(loop.x).sum()
    loop.watch.log(of_2=1.0)
    loop.end(loss)

    assert loop.steps("of_2") == [(2, 0)]


def test_an_evaluation_is_no_step_even_with_gradients(loop: Loop) -> None:
    loop.watch.log(one=1.0)
    loop.run()
    loop.watch.log(one=1.0)
    loop.model.eval()
    loss = loop.model(loop.x).sum()
    loop.model.train()
    loop.watch.log(val_loss=loss)
    loop.watch.log(norm=loop.model.weight.square().sum())

    assert loop.steps("val_loss") == loop.steps("norm") == [(0, 0)]


def test_what_another_thread_logs_is_placed_alike(loop: Loop) -> None:
    loop.run()
    loop.watch.log(one=1.0)

    def log(**metrics: float) -> None:
        thread = threading.Thread(target=loop.watch.log, kwargs=metrics)
        thread.start()
        thread.join()

    log(of_0=1.0)
    loss = loop.model(loop.x).sum()
    log(of_1=1.0)
    loop.end(loss)

    assert (loop.steps("of_0"), loop.steps("of_1")) == ([(0, 0)], [(1, 0)])


# Torch's own, of its tracing.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("way", ["not called", "traced"])
def test_a_forward_pass_that_no_hook_hears_counts_as_well(way: str, loop: Loop) -> None:
    if way == "not called":
        loop.forward = loop.model.forward
    else:
        loop.forward = torch.jit.trace(loop.model, loop.x)  # type: ignore[no-untyped-call]
    loop.run()
    for step in (0, 1):
        loop.watch.log(**{f"of_{step}": 1.0})
        loss = loop.forward(loop.x).sum()
        loop.watch.log(**{f"of_{step + 1}_too": 1.0})
        loop.end(loss)

    assert loop.steps("of_0") == [(0, 0)]
    assert loop.steps("of_1") == loop.steps("of_1_too") == [(1, 0)]
    assert loop.steps("of_2_too") == [(2, 0)]


def test_after_a_rollback_it_belongs_to_the_step_that_was_undone(line: RecordingLine) -> None:
    loop = Loop(line, Options(allow=("rollback",), snapshot_every=1, good_after=1))
    loop.run(4)
    line.commands.append(
        Command(id=CommandId("c1"), action=Rollback(), attempt=1, expires_at=float("inf"))
    )
    loop.run()
    loop.watch.log(late=1.0)
    loop.run()

    assert "rollback" in line.kinds()
    assert loop.steps("late") == [(4, 0)]
    assert line.rows[-1].segment == 1


def test_a_model_has_a_hook_only_once_something_is_logged_and_until_the_end(loop: Loop) -> None:
    hooks = cast("dict[int, object]", vars(loop.model)["_forward_pre_hooks"])
    loop.run(2)
    assert not hooks
    loop.watch.log(one=1.0)
    loop.watch.log(one=1.0)
    assert len(hooks) == 1
    loop.watch.finish()
    assert not hooks


def test_copies_of_the_model_tell_nothing(loop: Loop) -> None:
    loop.run()
    loop.watch.log(one=1.0)
    loop.run()
    for twin in (copy.deepcopy(loop.model), pickle.loads(pickle.dumps(loop.model))):
        twin(loop.x)
    loop.watch.log(of_1=1.0)

    assert loop.steps("of_1") == [(1, 0)]


# Torch's own, of its scripting.
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_model_that_is_scripted_meanwhile_is_scripted_without_a_hook(loop: Loop) -> None:
    loop.run()
    loop.watch.log(one=1.0)
    scripted = torch.jit.script(loop.model)
    loop.watch.log(of_0=1.0)
    loss = loop.model(loop.x).sum()
    loop.watch.log(of_1=1.0)
    loop.end(loss)
    loop.watch.finish()

    assert torch.equal(scripted(loop.x), loop.model(loop.x))
    assert (loop.steps("of_0"), loop.steps("of_1")) == ([(0, 0)], [(1, 0)])
    assert loop.watch.num_faults == 0
