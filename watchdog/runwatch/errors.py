"""What can be wrong with input to the core.

RunwatchError
└── InvalidInputError (ValueError)     names the place, what was found, what was wanted
    ├── LayoutError
    ├── FrameError
    │   ├── FrameTooLargeError
    │   └── ChecksumError
    ├── CommandError
    └── RuleError                      carries every fault of a rule document
"""

from collections.abc import Sequence
from dataclasses import dataclass


class RunwatchError(Exception):
    """Base of every error that Runwatch raises on purpose."""


class InvalidInputError(RunwatchError, ValueError):
    """Input that breaks a documented bound; nothing was changed by it."""

    code = "invalid_input"
    """Stable name of the error for programs, as in a problem's `code`."""


class LayoutError(InvalidInputError):
    code = "invalid_layout"


class FrameError(InvalidInputError):
    code = "invalid_frame"


class FrameTooLargeError(FrameError):
    code = "frame_too_large"


class ChecksumError(FrameError):
    code = "wrong_checksum"


class CommandError(InvalidInputError):
    code = "invalid_command"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a rule document."""

    place: str
    """Path in the document, such as `groups[0].rules[2].when`."""
    message: str
    """What was found and what was wanted."""
    column: int | None = None
    """1-based character within the text at `place`; None where the place has no text."""
    line: int | None = None
    """1-based line of the file, where the document came from one."""

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}, "
        column = "" if self.column is None else f", column {self.column}"
        return f"{line}{self.place}{column}: {self.message}"


class RuleError(InvalidInputError):
    """A rule document that cannot be used, with all that is wrong with it."""

    code = "invalid_rule"

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = tuple(faults)
