"""What ends a training from without is told by its kind, and goes on its way unchanged."""

import asyncio
import gc
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

import pytest
import torch
from tests.forking import TRAINER, run
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import tiny_gpt, watched
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from torch.distributed import DistBackendError

from runwatch_hooks.exit_causes import Fatal, RememberedExit, ending_by, fatal_of, reason_of


@pytest.fixture
def service() -> Iterator[StubService]:
    with serving(StubService()) as stub:
        yield stub


class Mute(RuntimeError):
    def __str__(self) -> str:
        raise OSError("not even that")


def wrapped(error: Exception) -> Exception:
    outer = ValueError("step 7 failed")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (DistBackendError("NCCL error in: ProcessGroupNCCL.cpp:1"), "collective_error"),
        (RuntimeError("[gloo/pair.cc] Connection closed by peer"), "collective_error"),
        (wrapped(MemoryError()), "out_of_memory"),
        (ExceptionGroup("tasks", [wrapped(MemoryError()), ValueError()]), "out_of_memory"),
        (RuntimeError("shape mismatch"), None),
        (ValueError("out of memory, as a figure of speech"), None),
        (Mute(), None),
    ],
)
def test_an_error_is_known_by_its_kind(error: Exception, fatal: str | None) -> None:
    assert fatal_of(error) == (None if fatal is None else Fatal(fatal))


def test_of_several_errors_the_first_is_told() -> None:
    error = ExceptionGroup("in tasks", [ExceptionGroup("more", [ValueError("bad data")])])

    assert reason_of(error) == (
        "ExceptionGroup: in tasks (1 sub-exception): ExceptionGroup: more (1 sub-exception): "
        "ValueError: bad data"
    )


def test_an_error_that_goes_round_in_circles_is_an_error_like_any_other() -> None:
    error = ValueError("a")
    error.__cause__ = ValueError("b")
    error.__cause__.__cause__ = error

    assert fatal_of(error) is None
    assert reason_of(Mute()) == "Mute"


def test_a_task_that_was_cancelled_was_stopped() -> None:
    assert ending_by(asyncio.CancelledError()) == ("stopped", "CancelledError")
    assert ending_by(asyncio.CancelledError("enough")) == ("stopped", "CancelledError: enough")


def test_an_interrupt_under_asyncio_stops_the_run(line: RecordingLine) -> None:
    async def train() -> None:
        model = tiny_gpt()
        with watched(model, torch.optim.SGD(model.parameters()), line=line):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60.0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(train())

    assert line.closed == [("stopped", "CancelledError")]


def test_a_generator_that_is_left_early_ends_its_run_in_order(line: RecordingLine) -> None:
    def train() -> Generator[int]:
        model = tiny_gpt()
        with watched(model, torch.optim.SGD(model.parameters()), line=line) as watch:
            yield from watch.steps(10)

    training = train()
    next(training)
    training.close()

    assert line.closed == [("finished", "the generator that trained was left")]


class Model:
    """What a function may hold."""


def leave_with_a_model(models: "WeakSet[Model]") -> None:
    model = Model()
    models.add(model)
    try:
        raise wrapped(MemoryError(model))
    except ValueError:
        sys.exit("enough")


def test_an_exit_that_was_caught_keeps_nothing_of_the_function_that_failed() -> None:
    models = WeakSet[Model]()
    with suppress(SystemExit):
        leave_with_a_model(models)
    gc.collect()

    assert len(models) == 0


def test_an_exit_is_remembered_by_its_words_alone() -> None:
    models = WeakSet[Model]()
    with pytest.raises(SystemExit) as caught:
        leave_with_a_model(models)
    told, remembered = ending_by(caught.value), RememberedExit(caught.value)
    del caught
    gc.collect()

    assert told == ("failed", "SystemExit: enough, after ValueError: step 7 failed")
    assert ending_by(remembered) == told
    assert fatal_of(remembered) is Fatal.OUT_OF_MEMORY
    assert ending_by(RememberedExit(SystemExit(0))) == ("finished", "")
    assert len(models) == 0


_PROGRAM = """
import sys
import torch
from runwatch_hooks import attach

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(watch):
    for step in range(20):
        if step == 12:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        watch.step(loss)

watch = attach(model, optimizer, run="oom", url=sys.argv[1], token=sys.argv[2], spool=sys.argv[3])
"""


both_endings = pytest.mark.parametrize(
    "ending",
    ["with watch:\n    train(watch)\n", "train(watch)\n"],
    ids=["in a block", "without"],
)
"""What follows a program: its training in a `with`, and by itself."""


@pytest.mark.slow
@both_endings
def test_a_program_that_runs_out_of_memory_tells_so_and_dies_as_it_would(
    tmp_path: Path, service: StubService, ending: str
) -> None:
    done = run(TRAINER, _PROGRAM + ending, [service.url, TOKEN, str(tmp_path)])

    assert done.returncode == 1
    assert "OutOfMemoryError: CUDA out of memory" in done.stderr
    assert service.steps == list(range(12))
    events = [event for frame in service.frames.values() for event in frame.events]
    (told,) = [event for event in events if event.kind == "out_of_memory"]
    assert told.step == 11
    assert "Tried to allocate 2.00 GiB" in str(told.detail["error"])
    (closing,) = service.closings
    assert (closing.status, closing.reason[:16]) == ("failed", "OutOfMemoryError")


_BREAKING = """
from torch.nn.utils import clip_grad_norm_

def train(watch):
    for step in range(20):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().mul(float("nan") if step == 4 else 1.0).backward()
        clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        watch.step(1.0)
"""


@pytest.mark.slow
@both_endings
def test_gradients_that_end_their_program_in_the_midst_of_a_step_are_told(
    tmp_path: Path, service: StubService, ending: str
) -> None:
    program = _PROGRAM + _BREAKING + ending
    run(TRAINER, program, [service.url, TOKEN, str(tmp_path)])

    assert service.steps == list(range(5))
    frame = next(one for one in service.frames.values() if one.first_step + one.num_steps == 5)
    assert frame.metrics[-1, frame.metric_names.index("nonfinite")] == 6.0


_LEAVING = """
for step in range(10):
    if step == 3:
        try:
            sys.exit(5)
        except SystemExit:
            pass
    watch.step(1.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last_line", "told"),
    [
        ("sys.exit(1)", ("failed", "SystemExit: 1")),
        ("sys.exit('no data')", ("failed", "SystemExit: no data")),
        ("sys.exit(0)", ("finished", "")),
        ("", ("finished", "")),
    ],
)
def test_a_program_that_leaves_with_an_error_code_has_not_finished(
    tmp_path: Path, service: StubService, last_line: str, told: tuple[str, str]
) -> None:
    program = _PROGRAM + _LEAVING + last_line
    run(TRAINER, program, [service.url, TOKEN, str(tmp_path)])

    assert service.steps == list(range(10))
    assert [(one.status, one.reason) for one in service.closings] == [told]
