"""When numbers of an accelerator are there: asked of the device that they come from."""

from typing import Any, ClassVar, cast

import pytest
import torch
from tests.hooks.cards import needs_card, needs_two
from torch import Tensor

from runwatch_hooks.state.finite import FiniteFlag
from runwatch_hooks.state.tree import HostCopies
from runwatch_hooks.statistics.readback import Course, Readback, has_passed, set_mark, wait_for


class Recorded:
    """An event of a machine that has accelerators; there is none to ask."""

    made: ClassVar[list["Recorded"]] = []

    def __init__(self, device: torch.device, *, enable_timing: bool) -> None:
        self.device = device
        self.is_timed = enable_timing
        self.stream: object = None
        self.made.append(self)

    def record(self, stream: object = "of the current device") -> None:
        self.stream = stream


def test_in_the_hosts_memory_there_is_nothing_to_wait_for() -> None:
    mark = set_mark(torch.device("cpu"))
    wait_for(mark)

    assert mark is None
    assert has_passed(mark)


def test_a_mark_stands_in_the_stream_of_its_device_whichever_is_current(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr(torch, "Event", Recorded)
    monkeypatch.setattr(torch.accelerator, "current_stream", "stream of {}".format)
    set_mark(torch.device("cuda", 0))
    set_mark(torch.device("cuda", 1), is_timed=True)

    assert [one.stream for one in Recorded.made] == ["stream of cuda:0", "stream of cuda:1"]
    assert [one.is_timed for one in Recorded.made] == [False, True]


class Stream:
    """One of a machine that has accelerators."""

    def __init__(self) -> None:
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: "Stream") -> None:
        self.waited_for.append(other)


class Kept:
    def __init__(self) -> None:
        self.used_by: list[Stream] = []

    def record_stream(self, stream: Stream) -> None:
        self.used_by.append(stream)


def test_what_is_kept_goes_from_stream_to_stream_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, first, second = Kept(), Stream(), Stream()
    course = Course(torch.device("cuda", 0))
    streams = iter((first, first, second, second, first))

    def current(device: torch.device) -> Stream:
        return next(streams)

    monkeypatch.setattr(torch.accelerator, "current_stream", current)
    for _ in range(5):
        course.follow(lambda: [cast(Tensor, kept)])

    assert (first.waited_for, second.waited_for) == ([second], [first])
    assert kept.used_by == [second, first]


def busy(device: torch.device) -> Tensor:
    """A one, behind much work that is queued on a device: some tenths of a second."""
    cuda = cast(Any, torch.cuda)
    one = torch.zeros(1, device=device)
    with cuda.device(device):
        cuda._sleep(500_000_000)
    return one + 1.0


@needs_card
@pytest.mark.parametrize("index", [0, pytest.param(1, marks=needs_two)])
def test_numbers_are_not_there_before_the_device_has_made_them(index: int) -> None:
    device = torch.device("cuda", index)
    readback = Readback(1, device)
    ticket = readback.send(busy(device))
    assert ticket is not None
    is_there = ticket.is_there()
    torch.accelerator.synchronize(device)

    assert not is_there
    assert ticket.values().tolist() == [1.0]


@needs_card
@pytest.mark.parametrize("index", [0, pytest.param(1, marks=needs_two)])
def test_a_copy_of_integers_is_waited_for_too(index: int) -> None:
    device = torch.device("cuda", index)
    copies = HostCopies()
    copy = copies.copy(busy(device).to(torch.int64))
    flag = FiniteFlag([], copies.devices)
    is_ready = flag.is_ready()
    flag.wait()

    assert not is_ready
    assert cast(Tensor, copy).tolist() == [1]
    assert flag.value()
