"""When a training thread that stands still is looked at, by a clock that the test sets."""

import threading
from dataclasses import dataclass, field

from runwatch.frames import Event
from runwatch.stalls import STALL
from runwatch.vocabulary import Phase
from runwatch_hooks.uplink.stalls import Progress, StallWatch


@dataclass
class Training:
    """A training in the thread of the test, and what is told of it."""

    now: float = 1000.0
    told: list[Event] = field(default_factory=list[Event])

    def __post_init__(self) -> None:
        self.progress = Progress(None, Phase.INIT, 1.0, self.now, threading.get_ident())
        self._watch = StallWatch(
            lambda: self.progress, self.told.append, stall_s=40.0, now=lambda: self.now
        )

    def trains(self, step: int) -> None:
        self.enters(Phase.TRAIN, step)

    def enters(self, phase: Phase, step: int) -> None:
        self.progress = Progress(step, phase, 1.0, self.now, threading.get_ident())

    def stands(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self._watch.look()

    def times(self) -> list[float]:
        return [float(str(event.detail["stalled_s"])) for event in self.told]


def test_a_step_that_takes_far_too_long_is_told_with_its_place() -> None:
    training = Training()
    for step in range(100):
        training.trains(step)
        training.stands(1)
    training.stands(38)
    assert training.told == []
    training.stands(1)

    (event,) = training.told
    assert (event.kind, event.step) == (STALL, 99)
    assert "test_stall_watch.py" in str(event.detail["place"])


def test_a_stack_that_stays_the_same_is_told_once() -> None:
    training = Training()
    training.trains(0)
    training.stands(4000)

    assert training.times() == [40.0]


def test_a_stack_that_changes_is_told_at_most_each_time_the_stall_has_doubled() -> None:
    training = Training()
    training.trains(0)
    training.stands(60)
    training.stands(40)  # on another line, as seen from here
    training.stands(1000)

    assert training.times() == [40.0, 80.0, 160.0]


def test_a_pause_that_is_as_long_as_one_before_is_no_stall() -> None:
    training = Training()
    training.trains(0)
    training.stands(60)
    training.trains(1)
    training.stands(119)
    assert len(training.told) == 1
    training.stands(1)

    assert training.times() == [40.0, 120.0]


def test_a_first_evaluation_may_take_long_and_a_later_one_as_long_as_that() -> None:
    training = Training()
    training.trains(0)
    training.enters(Phase.EVAL, 0)
    training.stands(100)
    assert training.told == []
    training.trains(1)
    training.stands(1)
    training.enters(Phase.EVAL, 1)
    training.stands(199)
    assert training.told == []
    training.stands(1)

    assert training.times() == [200.0]


def test_a_program_that_waits_for_work_does_not_stall() -> None:
    training = Training()
    training.trains(0)
    training.enters(Phase.IDLE, 0)
    training.stands(100_000)

    assert training.told == []


def test_a_program_that_never_makes_its_first_step_is_told() -> None:
    training = Training()
    training.stands(600)

    (event,) = training.told
    assert event.step == 0
