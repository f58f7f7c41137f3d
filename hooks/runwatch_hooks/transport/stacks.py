"""Where a thread of this process stands, read from its Python stack by another thread.

Reading a stack costs the thread nothing until then, and works for any program: nothing is wrapped.
File names, line numbers and names of functions are told, and no values.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import FrameType
from typing import Final

from runwatch.stalls import MAX_CHARS, MAX_LINES, Stage, Stall
from runwatch_hooks.transport.held import held_by_system

_MAX_DEPTH: Final = 400
"""Frames looked at: deep models nest a few frames per module."""

_STAGES: Final = (
    (Stage.DATA, ("/torch/utils/data/", "/torchdata/", "/site-packages/datasets/")),
    (Stage.DATA, ("/runwatch_hooks/watching/batch_positions.py",)),
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
