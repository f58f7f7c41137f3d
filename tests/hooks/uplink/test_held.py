"""What the operating system keeps from going on, with real processes and threads."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.waiting import LONGEST_S, until

from runwatch.stalls import Held
from runwatch_hooks.uplink.stalls import held_by_system

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

SLEEPS: Final = """\
#include <unistd.h>
void sleep_uninterruptibly(void) { if (vfork() == 0) { pause(); _exit(0); } }
int main(void) { sleep_uninterruptibly(); return 0; }
"""
"""Until a child of vfork has ended, its parent sleeps as one that waits for a disk does."""
STARTS_ANOTHER: Final = "import subprocess, sys; subprocess.run(sys.argv[1:])"


@pytest.fixture
def sleeping(tmp_path: Path) -> Callable[..., Path]:
    """Compiles the program above, or with an option a library of it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "sleeps.c"
    source.write_text(SLEEPS)

    def compiled(*options: str) -> Path:
        subprocess.run([compiler, *options, "-o", tmp_path / "sleeps", source], check=True)
        return tmp_path / "sleeps"

    return compiled


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes in groups of their own, which end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def started_with(*command: str | Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield started_with
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONGEST_S)


def children_of(pid: int | str) -> list[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in listed for child in one.read_text().split()]


def held() -> Held | None:
    return held_by_system(threading.get_ident())


def until_held(wanted: Held, thread: int | None = None) -> None:
    """A child that is being started waits for a disk first, or for the `vfork` of its own child."""
    ident = threading.get_ident() if thread is None else thread
    until(lambda: held_by_system(ident) is wanted)


def test_a_child_that_sleeps_is_not_held(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    start("sleep", "1000")

    until(lambda: held() is None)  # a child of another test may be writing to a disk just now


def test_a_stopped_child_is_told(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start("sleep", "1000")
    process.send_signal(signal.SIGSTOP)

    until_held(Held.CHILD_STOPPED)
    process.send_signal(signal.SIGCONT)
    until(lambda: held() is None)


def test_a_stopped_child_of_a_child_is_told(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    process = start(sys.executable, "-c", STARTS_ANOTHER, "sleep", "1000")
    (child,) = until(lambda: children_of(process.pid))
    os.kill(child, signal.SIGSTOP)

    until_held(Held.CHILD_STOPPED)


def test_a_child_that_waits_for_a_disk_is_told(
    sleeping: Callable[..., Path], start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    start(sleeping())

    until_held(Held.CHILD_ON_DISK)


def test_the_thread_itself_that_waits_for_a_disk_is_told(sleeping: Callable[..., Path]) -> None:
    library = ctypes.CDLL(str(sleeping("-shared", "-fPIC")))
    before = children_of("self")
    thread = threading.Thread(target=library.sleep_uninterruptibly)
    thread.start()
    assert thread.ident is not None
    ident = thread.ident

    until_held(Held.ON_DISK, ident)
    assert held() is not Held.ON_DISK
    for child in set(children_of("self")) - set(before):
        os.kill(child, signal.SIGKILL)
    thread.join(LONGEST_S)
    assert not thread.is_alive()


def test_of_a_thread_that_has_ended_nothing_is_known() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join(LONGEST_S)
    assert thread.ident is not None

    assert held_by_system(thread.ident) is None
