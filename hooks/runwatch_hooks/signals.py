"""Tells what interrupts the program, such as Ctrl-C, from a fault of the hook."""

from types import FrameType
from typing import cast


def is_interrupt(error: BaseException) -> bool:
    """Whether it is meant for the program: Ctrl-C, an exit, or what a signal handler raised."""
    return not isinstance(error, Exception) or is_of_a_signal(error)


def is_of_a_signal(error: Exception) -> bool:
    """Whether a signal handler raised it, as at the end of a time limit or of a job. It struck
    while the hook was running, and is meant for the program.

    Python gives a handler the frame that it interrupts, which is also the handler's caller."""
    trace = error.__traceback__
    while trace is not None:
        if _was_given_its_caller(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _was_given_its_caller(frame: FrameType) -> bool:
    given: list[object] = list(frame.f_locals.values())
    for value in tuple(given):
        if isinstance(value, tuple):  # the arguments of a handler that takes any
            given += cast("tuple[object, ...]", value)
    return frame.f_back is not None and any(one is frame.f_back for one in given)
