"""Where a thread of a training stands, as its stack shows it: real threads, real torch."""

import runpy
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.waiting import LONGEST_S
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from runwatch.stalls import MAX_CHARS, MAX_LINES, Stage, Stall
from runwatch_hooks.loop import BatchPositions
from runwatch_hooks.uplink.stalls import stall_of


class Gate:
    """Where a program stands still until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.opened.wait(LONGEST_S)

    @contextmanager
    def reached_by(self, program: Callable[[], object]) -> Generator[int]:
        """Runs a program, and yields its thread once it stands at the gate."""
        thread = threading.Thread(target=program)
        thread.start()
        assert self.reached.wait(LONGEST_S)
        assert thread.ident is not None
        yield thread.ident
        self.opened.set()
        thread.join(LONGEST_S)
        assert not thread.is_alive()


class Held(nn.Module):
    """Holds its forward pass."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        self.gate.pass_through()
        return x


class HeldData(Dataset[Tensor]):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        self.gate.pass_through()
        return torch.zeros(1)


def in_the_loader(gate: Gate) -> None:
    next(iter(DataLoader(HeldData(gate))))


def in_the_forward_pass(gate: Gate) -> None:
    nn.Sequential(nn.Linear(1, 1), Held(gate))(torch.ones(1, 1))


def in_the_backward_pass(gate: Gate) -> None:
    loss = torch.ones(1, requires_grad=True).exp()
    loss.register_hook(lambda _: gate.pass_through())  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]


def in_the_optimizers_step(gate: Gate) -> None:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight])

    def stand(*_: object) -> None:
        gate.pass_through()

    optimizer.register_step_post_hook(stand)
    optimizer.step()


def in_a_loader_without_position(gate: Gate) -> None:
    def batches() -> Iterator[int]:
        gate.pass_through()
        yield 0

    next(iter(BatchPositions().over_any(batches(), lambda _: None)))


def in_its_own_code(gate: Gate) -> None:
    gate.pass_through()


@pytest.mark.parametrize(
    ("program", "stage"),
    [
        (in_the_loader, Stage.DATA),
        (in_a_loader_without_position, Stage.DATA),
        (in_the_forward_pass, Stage.FORWARD),
        (in_the_backward_pass, Stage.BACKWARD),
        (in_the_optimizers_step, Stage.OPTIMIZER),
        (in_its_own_code, Stage.PROGRAM),
    ],
)
def test_a_thread_is_told_by_its_stage_and_the_programs_own_line(
    program: Callable[[Gate], None], stage: Stage
) -> None:
    gate = Gate()
    with gate.reached_by(lambda: program(gate)) as thread:
        stall = stall_of(thread, 47.0)

    assert stall is not None
    assert (stall.stage, stall.waits, stall.stalled_s) == (stage, False, 47.0)
    assert stall.place.startswith("uplink/test_stacks.py:")
    assert stall.place.endswith(" in pass_through")
    assert stall.stack[0] == stall.place  # not the lines of Python's own modules within
    assert len(stall.stack) <= MAX_LINES


def test_a_program_that_is_installed_is_told_by_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short script starts it, whose line says nothing."""
    installed, script = tmp_path / "site-packages" / "our_trainer", tmp_path / "bin" / "train"
    for folder in (installed, script.parent):
        folder.mkdir(parents=True)
    source = "def read_shard(gate):\n    gate.reached.set()\n    gate.opened.wait(400)\n"
    (installed / "shards.py").write_text(source)
    script.write_text("from our_trainer.shards import read_shard\nread_shard(gate)\n")
    monkeypatch.syspath_prepend(installed.parent)
    gate = Gate()

    with gate.reached_by(partial(runpy.run_path, str(script), {"gate": gate})) as thread:
        stall = stall_of(thread, 1.0)

    assert stall is not None
    assert stall.place == "our_trainer/shards.py:3 in read_shard"
    assert stall.stack == (stall.place, "bin/train:2 in <module>")


def test_a_thread_that_has_ended_stands_nowhere() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join(LONGEST_S)
    assert thread.ident is not None

    assert stall_of(thread.ident, 1.0) is None


def test_a_stall_is_the_same_on_the_other_side_of_the_wire() -> None:
    stall = Stall(47.0, Stage.DATA, waits=False, place="a.py:1 in b", stack=("a.py:1 in b",))

    assert Stall.of_detail(stall.to_detail()) == stall


def test_a_stall_that_is_told_at_length_is_cut() -> None:
    long = {"stalled_s": 1.0, "stage": "data", "waits": False, "place": "x" * 9999}

    stall = Stall.of_detail({**long, "stack": ["y" * 9999] * 999})

    assert stall is not None
    assert len(stall.place) == MAX_CHARS
    assert [len(line) for line in stall.stack] == [MAX_CHARS] * MAX_LINES


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"stalled_s": "long", "stage": "data", "waits": False, "place": "a"},
        {"stalled_s": 1.0, "stage": "of a later hook", "waits": False, "place": "a"},
        {"stalled_s": 1.0, "stage": "data", "waits": False, "place": "a", "stack": [1]},
    ],
)
def test_what_is_not_understood_is_no_stall(detail: dict[str, object]) -> None:
    assert Stall.of_detail(detail) is None
