"""What an observer may rely on, and what a fault of one costs."""

import logging
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import cast

import pytest
from tests.hooks.step.remote import Remote, SyncError, remote
from torch import Tensor

from runwatch.frames import Event
from runwatch_hooks.faults import Faults
from runwatch_hooks.step.observer import Observers, OptimizerStep, StepEnd, StepNotes, StepObserver
from runwatch_hooks.step.row import Row

END = StepEnd(
    step=3, segment=0, now=1.0, saw_gradients=True, named=(), is_sharded=False, optimizers=()
)
ROW = Row(3, 0, 1.7e9, {"loss": 1.0})


class Counting(StepObserver):
    """Numbers the steps."""

    name = "counting"

    def __init__(self, number: str = "counted", order: list[str] | None = None) -> None:
        self._number = number
        self._order = order
        self.num_steps = 0

    def end_step(self, end: StepEnd) -> StepNotes:
        self.num_steps += 1
        if self._order is not None:
            self._order.append(self._number)
        return StepNotes({self._number: float(self.num_steps)})


class Looking(StepObserver):
    """Looks at finished rows only."""

    name = "looking"

    def on_row(self, row: Row) -> Sequence[Event]:
        return [Event(row.step, "seen", row.at, {})]


class Failing(StepObserver):
    name = "failing"

    def __init__(self, error: BaseException, *, fails_at_the_end: bool = False) -> None:
        self._error = error
        self._fails_at_the_end = fails_at_the_end
        self.num_steps = 0
        self.num_detached = 0

    def end_step(self, end: StepEnd) -> StepNotes | None:
        self.num_steps += 1
        raise self._error

    def on_row(self, row: Row) -> Sequence[Event]:
        return [Event(row.step, "of the failing", row.at, {})]

    def detach(self) -> None:
        self.num_detached += 1
        if self._fails_at_the_end:
            raise self._error


def test_a_fault_costs_the_observer_that_fails_and_no_other() -> None:
    faults = Faults()
    before, failing, after = Counting("before"), Failing(ValueError("no")), Counting("after")
    observers = Observers([before, failing, Looking(), after], faults)
    first = observers.end_step(END)
    second = observers.end_step(END)

    assert first.numbers == {"before": 1.0, "after": 1.0}
    assert second.numbers == {"before": 2.0, "after": 2.0}
    assert failing.num_steps == 1
    assert [event.kind for event in observers.on_row(ROW)] == ["seen"]


def test_a_fault_is_counted_told_once_and_ends_the_observers_hooks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults, failing = Faults(), Failing(ValueError("no"))
    observers = Observers([failing], faults)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            observers.end_step(END)

    assert faults.count == 1
    assert faults.untold() == ["failing: ValueError: no"]
    assert len(caplog.records) == 1
    assert failing.num_detached == 1


class Following(Failing):
    """Fails, and follows optimizers."""

    def before_optimizer(self, step: OptimizerStep) -> None:
        pass


def test_what_follows_optimizers_detaches_when_no_step_is_seen_any_more() -> None:
    following, other = Following(ValueError("no")), Failing(ValueError("no"))
    Observers([following, other], Faults()).lose_steps()

    assert (following.num_detached, other.num_detached) == (1, 0)


def test_an_observer_that_fails_as_it_is_switched_off_costs_nothing_more() -> None:
    faults = Faults()
    counting = Counting()
    failing = Failing(ValueError("no"), fails_at_the_end=True)
    observers = Observers([failing, counting], faults)

    assert observers.end_step(END).numbers == {"counted": 1.0}
    assert faults.count == 2
    assert failing.num_detached == 1


def test_what_an_observer_does_not_override_is_never_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end_step(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(StepObserver, "end_step", end_step)
    faults = Faults()
    observers = Observers([Looking()], faults)

    assert observers.end_step(END).numbers == {}
    assert faults.count == 0


def test_observers_are_called_in_the_order_in_which_they_are_listed() -> None:
    order: list[str] = []
    Observers([Counting("b", order), Counting("a", order)], Faults()).end_step(END)

    assert order == ["b", "a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_programs_passes(error: BaseException) -> None:
    faults, failing = Faults(), Failing(error)
    with pytest.raises(type(error)):
        Observers([failing], faults).end_step(END)

    assert faults.count == 0
    assert failing.num_detached == 0


class Interrupted(StepObserver):
    """A signal of the program arrives while it observes."""

    name = "interrupted"

    def end_step(self, end: StepEnd) -> StepNotes | None:
        signal.raise_signal(signal.SIGTERM)
        return None


def test_what_a_signal_handler_of_the_program_raises_passes() -> None:
    def time_is_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGTERM, time_is_up)
    faults = Faults()
    try:
        with pytest.raises(TimeoutError):
            Observers([Interrupted()], faults).end_step(END)
    finally:
        signal.signal(signal.SIGTERM, former)

    assert faults.count == 0


class OfCard(StepObserver):
    """Adds a number that lies on an accelerator."""

    name = "of a card"

    def __init__(self, number: Tensor) -> None:
        self._number = number

    def end_step(self, end: StepEnd) -> StepNotes:
        return StepNotes({"far": self._number * 2.0})


def test_a_number_on_an_accelerator_is_handed_on_where_it_lies() -> None:
    faults = Faults()
    numbers = Observers([OfCard(remote(1.0))], faults).end_step(END).numbers

    assert faults.count == 0
    assert isinstance(numbers["far"], Remote)


CONVERSIONS: list[Callable[[Tensor], object]] = [
    bool,
    float,
    int,
    lambda tensor: tensor.item(),
    lambda tensor: cast("list[float]", tensor.tolist()),
    lambda tensor: tensor.cpu(),
    lambda tensor: tensor.numpy(),
    lambda tensor: tensor > 0.0 and None,
]


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_the_tensors_of_these_tests_refuse_to_be_converted(
    convert: Callable[[Tensor], object],
) -> None:
    with pytest.raises(SyncError):
        convert(remote(1.0))
