"""Runs that one program trains one after another: no step of an earlier one is due."""

import sys
from collections.abc import Iterator

import pytest
from tests.hooks.recorder import RecordingLine
from tests.hooks.test_threads import in_a_thread
from tests.hooks.tiny import tiny_gpt, train_one, watched
from tests.waiting import until
from torch.optim import SGD

from runwatch.vocabulary import Phase
from runwatch_hooks import ending


class Fold:
    """One of the models that a program trains."""

    def __init__(self, seed: int) -> None:
        self.line = RecordingLine()
        self._model = tiny_gpt(seed)
        self._optimizer = SGD(self._model.parameters(), lr=0.1)
        self.watch = watched(self._model, self._optimizer, line=self.line)

    def train(self) -> None:
        self.watch.step(train_one(self._model, self._optimizer))

    @property
    def phase(self) -> Phase:
        """As it was last told."""
        return self.line.progress[-1][1]


@pytest.fixture
def folds() -> Iterator[tuple[Fold, Fold]]:
    both = Fold(1), Fold(2)
    yield both
    for one in both:
        if hasattr(one, "watch"):
            one.watch.finish()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is idle as soon as the other trains."""
    monkeypatch.setattr(ending, "IDLE_AFTER_S", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_run_is_idle_while_the_program_trains_another(folds: tuple[Fold, Fold]) -> None:
    first, second = folds

    first.train()
    second.train()
    second.train()

    assert (first.phase, second.phase) == (Phase.IDLE, Phase.TRAIN)
    assert [phase for _, phase, _ in first.line.progress].count(Phase.IDLE) == 1


@pytest.mark.usefixtures("impatient")
def test_a_run_that_is_trained_again_is_not_idle(folds: tuple[Fold, Fold]) -> None:
    first, second = folds

    first.train()
    second.train()
    first.train()

    assert (first.phase, second.phase) == (Phase.TRAIN, Phase.IDLE)


@pytest.mark.usefixtures("impatient")
def test_a_run_in_another_thread_says_nothing_about_this_one(folds: tuple[Fold, Fold]) -> None:
    first, second = folds

    first.train()
    in_a_thread(second.train)

    assert first.phase is Phase.TRAIN


def test_runs_that_take_turns_are_not_idle(folds: tuple[Fold, Fold]) -> None:
    first, second = folds

    for _ in range(3):
        first.train()
        second.train()

    assert (first.phase, second.phase) == (Phase.TRAIN, Phase.TRAIN)


@pytest.mark.usefixtures("impatient")
def test_a_run_that_has_ended_hears_no_more(folds: tuple[Fold, Fold]) -> None:
    first, second = folds
    first.train()
    first.watch.finish()
    told = len(first.line.progress)

    second.train()

    assert len(first.line.progress) == told


LET_GO = "the program dropped its watch and trains another run"


def test_a_run_whose_watch_was_let_go_ends_as_another_is_trained(folds: tuple[Fold, Fold]) -> None:
    """As of a notebook's cell that is run again, with a model of its own."""
    first, second = folds
    first.train()
    del first.watch

    before = list(first.line.closed)
    second.train()
    until(lambda: bool(first.line.closed))

    assert before == []
    assert first.line.closed == [("finished", LET_GO)]
    assert (second.line.closed, second.phase) == ([], Phase.TRAIN)


def test_a_run_that_was_let_go_broken_has_failed(
    folds: tuple[Fold, Fold], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = folds
    first.train()
    monkeypatch.setattr(sys, "last_value", ValueError("no data"), raising=False)  # as of a cell
    del first.watch

    second.train()
    until(lambda: bool(first.line.closed))

    assert first.line.closed == [("failed", "ValueError: no data")]


@pytest.mark.usefixtures("impatient")
def test_a_run_whose_watch_is_held_goes_on(folds: tuple[Fold, Fold]) -> None:
    """As the members of an ensemble do, and the models of a GAN, whoever is trained for long."""
    first, second = folds
    first.train()
    watch = first.watch
    del first.watch

    second.train()
    second.train()
    watch.step(1.0)

    assert first.line.closed == []
    assert first.phase is Phase.TRAIN
    watch.finish()
