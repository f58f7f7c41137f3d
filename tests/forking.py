"""Programs of ours as processes of their own, forked from one that has imported what they need.

Importing the service or torch takes two to three seconds of a processor, which is longer than most
tests need the program for. A forked program is a process like any other: it has its own
environment, working directory, output and signals, runs as `__main__`, and ends as the interpreter
ends.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.waiting import LONGEST_S

SERVICE: Final = ("runwatch_server.cli.app", "runwatch_server.cli.serve")
TRAINER: Final = (
    "torch",
    "torch.distributed.run",
    "torch._dynamo",
    "runwatch_hooks.attaching",
)

_ROOT: Final = Path(__file__).parents[1]
_PROGRAM: Final = Path(__file__).with_name("forking_program.py")


class Forked:
    """A program that was forked; its methods are those of `subprocess.Popen`."""

    def __init__(self, parent: "_Parent", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._parent = parent
        self._pidfd = os.pidfd_open(pid)

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self._note_end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._note_end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _note_end(self) -> None:
        self.returncode = self._parent.ask({"wait": self.pid})
        os.close(self._pidfd)


class _Parent:
    """The process that has imported some modules, and that forks."""

    def __init__(self, modules: Sequence[str], python_path: str) -> None:
        """`python_path` is where modules are looked for first, as in PYTHONPATH. Ours for tests
        are found too."""
        paths = filter(None, [python_path, str(_ROOT)])
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def ask(self, message: Mapping[str, Any]) -> int:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


_parent_of: Final = cache(_Parent)


def fork(
    modules: tuple[str, ...],
    program: str,
    arguments: Sequence[str],
    *,
    output: Path,
    errors: Path | None = None,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Forked:
    """Starts `program`, a module's name or a file's path (ending in .py), where `modules` have been
    imported. What it prints is appended to the file `output`, its standard error to `errors` where
    that is given; its input is empty."""
    parent = _parent_of(modules, environment.get("PYTHONPATH", ""))
    message = {
        "program": program,
        "arguments": list(arguments),
        "output": str(output),
        "errors": str(errors or output),
        "environment": dict(environment),
        "folder": str(folder or Path.cwd()),
    }
    return Forked(parent, parent.ask(message))


def run(
    modules: tuple[str, ...],
    program: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """How a forked program ended, as `subprocess.run` with `capture_output` returns it. `program`
    may also be a source text of several lines. Raises subprocess.TimeoutExpired."""
    with TemporaryDirectory() as name:
        source, output, errors = (Path(name, file) for file in ("program.py", "output", "errors"))
        if "\n" in program:
            source.write_text(program, encoding="utf-8")
            program = str(source)
        with fork(
            modules,
            program,
            arguments,
            output=output,
            errors=errors,
            environment=os.environ if environment is None else environment,
            folder=folder,
        ) as forked:
            code = forked.wait(LONGEST_S)
        return subprocess.CompletedProcess(
            [program, *arguments], code, output.read_text(), errors.read_text()
        )


def torchrun(
    program: Path,
    arguments: Sequence[str],
    *,
    num_ranks: int,
    output: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> Forked:
    """Starts a job of several ranks. torchrun is forked, and forks its ranks."""
    options = ["--standalone", "--run-path", "--start-method=fork"]
    options.append(f"--nproc-per-node={num_ranks}")
    return fork(
        TRAINER,
        "torch.distributed.run",
        [*options, str(program), *arguments],
        output=output,
        environment={"OMP_NUM_THREADS": "1", **environment},
        folder=folder,
    )
