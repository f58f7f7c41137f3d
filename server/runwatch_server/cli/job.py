"""Runs a job as a child process: passes signals on, and returns its exit code."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
"""Exit codes, as shells use them."""
_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_S: Final = 0.05


def title_of(command: Sequence[str]) -> str:
    """What people call a job: its script or its module, else its program."""
    scripts = (word for word in command if word.endswith(".py"))
    modules = (word for flag, word in itertools.pairwise(command) if flag == "-m")
    return Path(next(scripts, None) or next(modules, None) or command[0]).name


def run_job(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs a command to its end, in our terminal and process group; returns its exit code, or 128 +
    signal.

    SIGINT, SIGTERM and SIGHUP are passed on to the job and do nothing to us.
    """
    got: list[int] = []
    with _signals_collected(got):
        try:
            job = subprocess.Popen(command, env=variables)
        except FileNotFoundError:
            return NOT_FOUND
        except PermissionError:
            return NOT_EXECUTABLE
        # Polled: a signal that is delivered to one of numpy's threads would not end a wait here.
        while (code := job.poll()) is None:
            while got:
                _forward_signal(job, got.pop(0))
            time.sleep(_LOOK_EVERY_S)
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_collected(got: list[int]) -> Generator[None]:
    """Within, signals are only noted; those that were ignored stay ignored (nohup)."""

    def note(number: int, _: FrameType | None) -> None:
        got.append(number)

    before = {number: signal.getsignal(number) for number in _FORWARDED}
    noted = [number for number in _FORWARDED if before[number] is not signal.SIG_IGN]
    for number in noted:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in noted:
            signal.signal(number, before[number])


def is_at_terminal() -> bool:
    """Whether somebody reads what we print and can press Ctrl-C, which does not reach a job in the
    background."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:  # no terminal, or not the one that controls us
        return os.isatty(2)


def _forward_signal(job: "subprocess.Popen[bytes]", number: int) -> None:
    """Passes a signal on to the job, unless the terminal has sent it there too.

    A terminal sends Ctrl-C to its whole foreground process group. If we passed it on, it would
    arrive twice, and many trainers take the second as an order to stop at once.
    """
    if not (number == signal.SIGINT and _is_in_foreground()):
        job.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether our process group receives what a terminal's keys send."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
