"""When the training thread stands still: since when, where its code is, and what holds it.

Reading a stack costs the thread nothing until then, and works for any program: nothing is wrapped.
File names, line numbers and names of functions are told, and no values.
"""

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from types import FrameType
from typing import Final

from runwatch.frames import Event
from runwatch.stalls import MAX_CHARS, MAX_LINES, STALL, Held, Stage, Stall
from runwatch.vocabulary import Phase

# What the operating system keeps from going on: the training thread, or a process that it may be
# waiting for, such as a worker of its data loader. Read from `/proc`, and so on Linux only;
# elsewhere nothing is known.

_PROC: Final = Path("/proc")
_UNINTERRUPTIBLE: Final = "D"
_STOPPED: Final = frozenset("tT")
_MAX_PROCESSES: Final = 1000


def held_by_system(thread: int) -> Held | None:
    """Of a thread of this process, given its identifier, and of the processes that this one has
    started; None if none of them is held, or nothing is known."""
    own = _native_id(thread)
    if own is not None and _state(_PROC / "self" / "task" / str(own)) == _UNINTERRUPTIBLE:
        return Held.ON_DISK
    states = {_state(process) for process in _descendants()}
    if _STOPPED & states:
        return Held.CHILD_STOPPED
    return Held.CHILD_ON_DISK if _UNINTERRUPTIBLE in states else None


def _native_id(thread: int) -> int | None:
    return next((one.native_id for one in threading.enumerate() if one.ident == thread), None)


def _descendants() -> Iterator[Path]:
    """Also the children of children: workers may be started by a server of forks."""
    waiting = [_PROC / "self"]
    for _ in range(_MAX_PROCESSES):
        if not waiting:
            return
        process = waiting.pop()
        if process.name != "self":
            yield process
        waiting += [_PROC / child for child in _children(process)]


def _children(process: Path) -> Iterator[str]:
    for listed in process.glob("task/*/children"):
        try:
            yield from listed.read_text().split()
        except OSError:  # that thread has ended
            continue


def _state(process: Path) -> str:
    """One letter, as in proc(5); empty if it has ended."""
    try:
        stat = (process / "stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]  # its name, in brackets, may hold anything


_MAX_DEPTH: Final = 400
"""Frames looked at: deep models nest a few frames per module."""

_STAGES: Final = (
    (Stage.DATA, ("/torch/utils/data/", "/torchdata/", "/site-packages/datasets/")),
    (Stage.DATA, ("/runwatch_hooks/loop.py",)),
    (Stage.SAVING, ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/")),
    (Stage.COLLECTIVE, ("/torch/distributed/distributed_c10d.py", "/torch/distributed/fsdp/")),
    (Stage.COLLECTIVE, ("/torch/distributed/_functional_collectives.py",)),
    (Stage.COLLECTIVE, ("/torch/nn/parallel/distributed.py", "/deepspeed/comm/")),
    (Stage.DEVICE, ("/torch/cuda/__init__.py", "/torch/cuda/streams.py", "/torch/accelerator/")),
    (Stage.OPTIMIZER, ("/torch/optim/", "/torch/amp/grad_scaler.py")),
    (Stage.BACKWARD, ("/torch/autograd/graph.py", "/torch/autograd/__init__.py")),
    (Stage.FORWARD, ("/torch/nn/modules/module.py",)),
)
"""Parts of file names by which a frame shows its stage."""

_WAITING: Final = frozenset((Stage.COLLECTIVE, Stage.DEVICE, Stage.HOOK))
_OUR_PACKAGE: Final = "runwatch_hooks"
_LIBRARY_PARTS: Final = frozenset(("site-packages", "dist-packages"))
_FRAMEWORKS: Final = frozenset(
    (
        _OUR_PACKAGE,
        *("torch", "torchdata", "torchvision", "numpy", "lightning", "lightning_fabric"),
        *("pytorch_lightning", "transformers", "accelerate", "deepspeed", "datasets", "peft"),
    )
)
_STANDARD_LIBRARY: Final = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")
)
_SCRIPT: Final = "<module>"
"""The name of a script's own lines, outside of any function."""


@dataclass(frozen=True, slots=True)
class _Line:
    path: str
    number: int
    function: str

    @property
    def stage(self) -> Stage | None:
        path = self.path.replace(os.sep, "/")
        for stage, parts in _STAGES:
            if any(part in path for part in parts):
                return stage
        return None

    @property
    def is_of_hook(self) -> bool:
        return _OUR_PACKAGE in PurePath(self.path).parts

    @property
    def package(self) -> str:
        """The installed package that it belongs to; empty if it belongs to none."""
        parts = PurePath(self.path).parts
        for folder in _LIBRARY_PARTS.intersection(parts[:-1]):
            return parts[parts.index(folder) + 1]
        return ""

    @property
    def is_of_python(self) -> bool:
        is_standard = self.path.startswith(_STANDARD_LIBRARY) and not self.package
        return is_standard or self.path.startswith("<frozen")

    @property
    def is_of_program(self) -> bool:
        """Whether it is neither Python's, nor ours, nor installed."""
        return not (self.package or self.is_of_hook or self.is_of_python)

    def __str__(self) -> str:
        return f"{_shortened(self.path)}:{self.number} in {self.function}"[:MAX_CHARS]


def stall_of(thread: int, stalled_s: float) -> Stall | None:
    """Where a thread stands, given its identifier; None if it has ended.

    The thread goes on while it is looked at, so the lines may belong to two moments; one that
    hangs stays where it is.
    """
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    stack = list(_lines(frame))
    if not stack:
        return None
    called = [line for line in stack if not line.is_of_python] or stack
    stage, waits = _stage_of(called)
    if stage is not Stage.HOOK:  # what the hook has wrapped only passes calls on
        called = [line for line in called if not line.is_of_hook] or called
    told = tuple(str(line) for line in called[:MAX_LINES])
    held = None if waits else held_by_system(thread)
    return Stall(stalled_s, stage, waits, str(_place_in(called)), told, held)


def _lines(frame: FrameType | None) -> Iterator[_Line]:
    """The lines of a stack, the innermost first."""
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return
        code = frame.f_code
        yield _Line(code.co_filename, frame.f_lineno or 0, code.co_name)
        frame = frame.f_back


def _stage_of(called: Sequence[_Line]) -> tuple[Stage, bool]:
    """The stage of the innermost line that shows one, and whether the thread may be waiting for
    other ranks there. `called` are the lines without those of the standard library.

    A backward pass waits for them inside autograd, which is not Python: no line lies further in.
    """
    if called[0].stage is None and called[0].is_of_hook:
        return Stage.HOOK, True
    for depth, line in enumerate(called):
        stage = line.stage
        if stage is not None:
            is_innermost = depth == 0
            waits = stage in _WAITING or (stage is Stage.BACKWARD and is_innermost)
            return stage, waits
    return Stage.PROGRAM, False


def _place_in(called: Sequence[_Line]) -> _Line:
    """The innermost line of the program's own code.

    Some programs are installed and started by a short script: of these it is the innermost line of
    an installed package that is no framework.
    """
    own = next((line for line in called if line.is_of_program), None)
    if own is not None and own.function != _SCRIPT:
        return own
    installed = (line for line in called if line.package and line.package not in _FRAMEWORKS)
    return next(installed, own or called[0])


def _shortened(path: str) -> str:
    """A file's name as short as it can be told from others: from where libraries are installed, or
    with its own folder."""
    parts = PurePath(path).parts
    for folder in _LIBRARY_PARTS.intersection(parts):
        return "/".join(parts[parts.index(folder) + 1 :])
    if _OUR_PACKAGE in parts:
        return "/".join(parts[parts.index(_OUR_PACKAGE) :])
    return "/".join(parts[-2:])


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the training. Replaced as a whole, so that the sender never sees half a
    change."""

    last_step: int | None
    """None before the first step."""
    phase: Phase
    lr_scale: float
    since: float
    """When the last step ended, or the phase or the attempt began; monotonic clock."""
    thread: int
    """Identifier of the thread that trains."""

    @property
    def next_step(self) -> int:
        return 0 if self.last_step is None else self.last_step + 1


def never() -> bool:
    """False: for a program without modules."""
    return False


class ProgressBoard:
    """Written by the training thread (`tell`), read by the sender (`see`).

    A loop that evaluates without `watch.phase("eval")` would look as if it hung. It is recognised
    by its modules, which are in evaluation mode and were not when the last step ended.
    """

    def __init__(self, is_evaluating: Callable[[], bool] = never) -> None:
        """`is_evaluating` says whether all modules are in evaluation mode; called in any thread."""
        self._is_evaluating = is_evaluating
        self._told = Progress(
            None, Phase.INIT, 1.0, since=time.monotonic(), thread=threading.get_ident()
        )
        self._trains_in_eval = False
        self._seen: Phase | None = None
        self._seen_since = 0.0

    @property
    def last_step(self) -> int | None:
        return self._told.last_step

    @property
    def next_step(self) -> int:
        return self._told.next_step

    def tell(self, step: int | None, phase: Phase, lr_scale: float) -> None:
        """Report the current state. `since` starts again with each step and each phase."""
        told = self._told
        is_same = (step, phase) == (told.last_step, told.phase)
        since = told.since if is_same else time.monotonic()
        if step != told.last_step:  # some models are trained in evaluation mode
            self._trains_in_eval = self._is_evaluating()
        self._told = Progress(step, phase, lr_scale, since, threading.get_ident())

    def see(self) -> Progress:
        """The current state, with the phase `eval` if the modules show it."""
        told = self._told
        phase = told.phase
        if phase is Phase.TRAIN and not self._trains_in_eval and self._is_evaluating():
            phase = Phase.EVAL
        if phase is not self._seen:
            self._seen, self._seen_since = phase, time.monotonic()
        return replace(told, phase=phase, since=max(told.since, self._seen_since))


_TIMES_LONGEST: Final = 2.0
"""Below the three times for which StepOverdue waits, so that the alert can say where."""
_TIMES_UNKNOWN: Final = 15.0
"""Before a phase other than training has ended once: an evaluation may well take ten minutes."""


class StallWatch:
    """Looks at the stack of a training thread that does not get on.

    It learns how long steps and phases take, and looks when one takes far longer than any before;
    then each time the stall has doubled, so that a hang of hours is told of a dozen times. A stack
    that has not changed is not told again.
    """

    def __init__(
        self,
        progress: Callable[[], Progress],
        tell: Callable[[Event], None],
        *,
        stall_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stall_s` is as in UplinkSettings; `now` is the clock of `Progress.since`."""
        self._progress = progress
        self._tell = tell
        self._stall_s = stall_s
        self._now = now
        self._longest_s: dict[Phase, float] = {}
        self._stay: tuple[Phase, float] | None = None
        """The phase of the step that was looked at last, and since when."""
        self._lasted_s = 0.0
        """How long that had lasted then."""
        self._due_s = 0.0
        self._told: tuple[str, ...] = ()

    def look(self) -> None:
        """To be called every second or so, by another thread than the one that trains."""
        progress = self._progress()
        stay = progress.phase, progress.since
        if stay != self._stay:
            self._learn()
            self._stay, self._told, self._due_s = stay, (), self._limit_s(progress.phase)
        self._lasted_s = self._now() - progress.since
        if self._lasted_s < self._due_s or progress.phase is Phase.IDLE:
            return
        self._due_s = 2.0 * self._lasted_s
        stall = stall_of(progress.thread, self._lasted_s)
        if stall is not None and stall.stack != self._told:
            self._told = stall.stack
            self._tell(Event(progress.last_step or 0, STALL, time.time(), stall.to_detail()))

    def _learn(self) -> None:
        """What was looked at before is over."""
        if self._stay is not None:
            phase, _ = self._stay
            self._longest_s[phase] = max(self._longest_s.get(phase, 0.0), self._lasted_s)

    def _limit_s(self, phase: Phase) -> float:
        longest_s = self._longest_s.get(phase)
        if longest_s is None and phase is not Phase.TRAIN:
            return _TIMES_UNKNOWN * self._stall_s
        return max(self._stall_s, _TIMES_LONGEST * (longest_s or 0.0))
