"""What strikes a rollback, such as Ctrl-C: it is carried out, told, and then raised."""

import math
import signal
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM, tiny_gpt, train_one

from runwatch.commands import Command, CommandState, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.settings.options import Options

OPTIONS = Options(allow=("rollback",), snapshot_every=1, snapshots=12, good_after=2)


class TimeIsUp(Exception):
    """What the program's own handler of a signal raises."""


def raise_time_is_up(number: int, frame: object) -> None:
    raise TimeIsUp


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, raise_time_is_up)
    yield
    signal.signal(signal.SIGUSR1, before)


class Struck:
    """State of the program's own; something strikes while it is restored, `times` times."""

    def __init__(self, strike: Callable[[], None], times: int = 1) -> None:
        self._strike = strike
        self._times = times

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        if self._times:
            self._times -= 1
            self._strike()


@pytest.mark.parametrize(
    ("strike", "times", "raised"),
    [
        (interrupt, 1, KeyboardInterrupt),
        (interrupt, 3, KeyboardInterrupt),
        (lambda: signal.raise_signal(signal.SIGUSR1), 1, TimeIsUp),
    ],
)
@pytest.mark.usefixtures("alarm")
def test_what_interrupts_a_rollback_is_raised_once_it_is_carried_out_and_told(
    strike: Callable[[], None], times: int, raised: type[BaseException], line: RecordingLine
) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    extra = {"struck": Struck(strike, times)}
    objects = Objects(modules={"": model}, optimizers=(optimizer,), extra=extra)
    watch = build_watch(objects, OPTIONS, line.open, TEAM)
    for _ in range(3):
        watch.step(train_one(model, optimizer))
    weights = model.head.weight.detach().clone()
    for _ in range(2):
        watch.step(train_one(model, optimizer))
    line.commands = [Command(CommandId("c1"), Rollback(to_step=2), 1, math.inf)]
    loss = train_one(model, optimizer)

    with pytest.raises(raised):
        watch.step(loss)

    assert torch.equal(model.head.weight, weights)
    assert watch.next_step == 3
    assert [one.state for one in line.receipts] == [CommandState.APPLIED]
    assert line.progress[-1][0] == 2
    watch.step(train_one(model, optimizer))
    assert (line.rows[-1].step, line.rows[-1].segment) == (3, 1)
