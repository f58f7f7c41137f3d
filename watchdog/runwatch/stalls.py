"""What a rank that stands still tells of itself: how long, in which stage of a step, at which line.

It travels as an event of kind `stall`, so hooks and services of different ages understand each
other: a hook that knows no stalls sends none, and a service that knows none stores the event.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from runwatch.frames import Scalar

STALL: Final = "stall"
"""The event's kind."""
MAX_LINES: Final = 8
"""Lines of a stack that are told."""
MAX_CHARS: Final = 160
"""Of a line, whatever a program names its files: alerts and messages hold it."""


class Stage(StrEnum):
    """What a training thread is busy with, as its stack shows it."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    COLLECTIVE = "collective"
    DEVICE = "device"
    SAVING = "saving"
    HOOK = "hook"
    PROGRAM = "program"
    """None of the others: code of the program's own."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS: Final = {
    Stage.DATA: "in the data loader",
    Stage.FORWARD: "in the forward pass",
    Stage.BACKWARD: "in the backward pass",
    Stage.OPTIMIZER: "in the optimizer's step",
    Stage.COLLECTIVE: "in a collective operation",
    Stage.DEVICE: "waiting for the device",
    Stage.SAVING: "saving or loading",
    Stage.HOOK: "in Runwatch's hook",
    Stage.PROGRAM: "in the program's own code",
}


class Held(StrEnum):
    """What the operating system keeps from going on."""

    ON_DISK = "on_disk"
    """The thread itself sleeps uninterruptibly: for a disk, or for a server of files."""
    CHILD_ON_DISK = "child_on_disk"
    CHILD_STOPPED = "child_stopped"
    """By a signal, or by a debugger."""

    @property
    def words(self) -> str:
        return _WORDS_OF_HELD[self]


_WORDS_OF_HELD: Final = {
    Held.ON_DISK: "waiting for a disk or a network filesystem",
    Held.CHILD_ON_DISK: "a child process waits for a disk or a network filesystem",
    Held.CHILD_STOPPED: "a child process is stopped",
}


class Stall(msgspec.Struct, frozen=True):
    """A training thread that makes no progress, as it looked from another thread."""

    stalled_s: float
    """Seconds since the last step ended, or the phase began."""
    stage: Stage
    waits: bool
    """Whether it stands where a rank waits for the others, so that it need not be the cause."""
    place: str
    """The innermost line of the program's own code, such as `data.py:17 in read`."""
    stack: tuple[str, ...] = ()
    """The innermost lines of the stack, the innermost first; at most MAX_LINES."""
    held: Held | None = None
    """None if nothing is known to be, or if it waits for the others."""

    def to_detail(self) -> dict[str, Scalar | list[str]]:
        """As the detail of an event."""
        detail: dict[str, Scalar | list[str]] = {
            "stalled_s": round(self.stalled_s, 1),
            "stage": self.stage.value,
            "waits": self.waits,
            "place": self.place,
            "stack": list(self.stack[:MAX_LINES]),
        }
        return detail if self.held is None else {**detail, "held": self.held.value}

    @property
    def words(self) -> str:
        """Such as `in the data loader (data.py:17 in read; a child process is stopped)`."""
        held = f"; {self.held.words}" if self.held is not None else ""
        return f"{self.stage.words} ({self.place}{held})"

    @classmethod
    def of_detail(cls, detail: Mapping[str, object]) -> "Stall | None":
        """The stall that an event tells, as short as ours are; None if it is not one that we
        understand."""
        try:
            told = msgspec.convert(detail, cls)
        except msgspec.ValidationError:
            return None
        stack = tuple(line[:MAX_CHARS] for line in told.stack[:MAX_LINES])
        return msgspec.structs.replace(told, place=told.place[:MAX_CHARS], stack=stack)


class StalledRank(msgspec.Struct, frozen=True):
    """One rank of several that stand still."""

    rank: int
    step: int
    """The step that ended last on this rank; 0 before any did."""
    host: str | None
    """The name of its host; None if it is unknown."""
    stall: Stall
    is_apart: bool = False
    """Whether it stands elsewhere than the others, which seem to wait for it."""
