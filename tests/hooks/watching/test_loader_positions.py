"""A loader with a state: asked and put back, it leaves the training's generators as they were."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownMemberType=false
# (torchdata does not say what its loader's batches are)

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM
from torch import nn
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import (  # type: ignore[import-untyped]
    StatefulDataLoader,
)

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.state.loop_state import draws_by_itself

pytestmark = [
    # torchdata 0.11 calls it when a loader is made.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    # Of a loader's workers, from Python 3.12 on.
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

BATCHES = 6
"""In a pass over the data."""

Seen = tuple[list[int], list[float], float]
"""The rows of a batch, what the dataset drew for them, and what the step drew."""


class Rows(Dataset[tuple[int, float]]):
    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, torch.rand(()).item()


def loader_of(
    num_workers: int, generator: torch.Generator | None = None
) -> StatefulDataLoader[Any]:
    return StatefulDataLoader(
        Rows(), batch_size=2, shuffle=True, num_workers=num_workers, generator=generator
    )


class Wrapped:
    """Passes on what it is asked for, as wrappers do."""

    def __init__(self, loader: StatefulDataLoader[Any]) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class AnswersToAll:
    def __getattr__(self, name: str) -> Any:
        return None


class RaisesKeyErrors:
    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_loader_is_known_also_in_a_wrapper_but_not_by_an_answer_to_every_name() -> None:
    assert draws_by_itself(loader_of(0))
    assert draws_by_itself(Wrapped(loader_of(0)))
    assert not draws_by_itself(AnswersToAll())
    assert not draws_by_itself(RaisesKeyErrors())


def watched(
    loader: StatefulDataLoader[Any], line: RecordingLine, checkpoints: Path | None = None
) -> LiveWatch:
    model = nn.Linear(1, 1)
    objects = Objects(
        modules={"": model},
        optimizers=[torch.optim.SGD(model.parameters(), lr=0.0)],
        extra={"dataloader": loader},
    )
    options = Options(
        allow=("rollback",),
        snapshot_every=4,
        good_after=1,
        checkpoints=checkpoints,
        checkpoint_every=None if checkpoints is None else 4,
    )
    return build_watch(objects, options, line.open, TEAM)


def seen_of(batch: list[torch.Tensor]) -> Seen:
    rows, drawn = batch
    return rows.tolist(), drawn.tolist(), torch.rand(()).item()


def train(
    watch: LiveWatch, loader: StatefulDataLoader[Any], steps: int, roll_back: Callable[[int], None]
) -> Iterator[tuple[int, Seen]]:
    while watch.next_step < steps:
        for batch in watch.batches(loader):
            step = watch.next_step
            yield step, seen_of(batch)
            roll_back(step)
            watch.step(1.0)
            if watch.next_step == steps:
                break
    watch.finish()
    loader.load_state_dict({})  # lets its workers go, who else go seconds after it is collected


def bare(num_workers: int, prepare: Callable[[], object]) -> list[Seen]:
    torch.manual_seed(3)
    loader = loader_of(num_workers)
    nn.Linear(1, 1)
    prepare()
    return [seen_of(batch) for _ in range(2) for batch in loader]


def attached(num_workers: int, prepare: Callable[[], object], line: RecordingLine) -> list[Seen]:
    torch.manual_seed(3)
    loader = loader_of(num_workers)
    watch = watched(loader, line)
    prepare()
    return [seen for _, seen in train(watch, loader, 2 * BATCHES, lambda step: None)]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "prepare", [lambda: torch.manual_seed(5), lambda: torch.rand(3)], ids=["seeds", "draws"]
)
def test_a_program_that_seeds_after_attach_has_the_batches_that_it_has_bare(
    num_workers: int, prepare: Callable[[], object], line: RecordingLine
) -> None:
    assert attached(num_workers, prepare, line) == bare(num_workers, prepare)


def test_a_position_that_the_program_has_loaded_is_not_asked_for(line: RecordingLine) -> None:
    earlier = loader_of(0)
    next(iter(earlier))
    loader = loader_of(0)
    loader.load_state_dict(earlier.state_dict())

    torch.manual_seed(5)
    watch = watched(loader, line)
    torch.manual_seed(5)
    next(iter(loader))
    drawn = torch.rand(())
    watch.finish()

    loader.load_state_dict(earlier.state_dict())
    torch.manual_seed(5)
    next(iter(loader))
    assert torch.rand(()) == drawn


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("own", [False, True], ids=["torch's generator", "its own"])
@pytest.mark.parametrize(
    ("after", "action", "again"),
    [
        (3, Rollback(before_step=3), [0, 1, 2]),
        (5, Rollback(to_step=3), [4, 5]),
        (8, Rollback(to_step=3), [4, 5, 6, 7, 8]),
    ],
    ids=["to the beginning", "within the pass", "into the pass before"],
)
def test_what_is_trained_again_draws_what_it_drew(
    num_workers: int,
    own: bool,
    after: int,
    action: Rollback,
    again: list[int],
    line: RecordingLine,
) -> None:
    torch.manual_seed(3)
    loader = loader_of(num_workers, torch.Generator().manual_seed(1) if own else None)
    watch = watched(loader, line)
    torch.manual_seed(5)
    first: dict[int, Seen] = {}
    second: dict[int, Seen] = {}

    def roll_back(step: int) -> None:
        if step == after and not second:
            line.commands.append(Command(CommandId("c1"), action, 1, 1e12))

    for step, (rows, _, drawn) in train(watch, loader, 10, roll_back):
        seen: Seen = rows, [], drawn  # workers draw from generators of their own, which begin anew
        (second if step in first else first)[step] = seen

    assert {step: second[step] for step in again} == {step: first[step] for step in again}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resume_within_a_pass_draws_what_was_drawn(
    num_workers: int, tmp_path: Path, line: RecordingLine
) -> None:
    torch.manual_seed(3)
    loader = loader_of(num_workers)
    watch = watched(loader, line, tmp_path)
    first = dict(train(watch, loader, 6, lambda step: None))

    torch.manual_seed(4)
    loader = loader_of(num_workers)
    watch = watched(loader, RecordingLine(), tmp_path)
    assert watch.resume() == 4
    second = dict(train(watch, loader, 6, lambda step: None))

    assert [second[step][::2] for step in (4, 5)] == [first[step][::2] for step in (4, 5)]
