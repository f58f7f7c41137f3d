"""The process that `tests.forking` forks programs from: MODULE [MODULE ...] are imported first.

A line of JSON on its input is a program to start, answered by its pid, or `{"wait": PID}`, answered
by that process's exit code once it has ended. It ends with its input.
"""

import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        message = json.loads(line)
        if "wait" in message:
            answer = os.waitstatus_to_exitcode(os.waitpid(message["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                answers.close()
                _become(message)
                return
        answers.write(f"{answer}\n")
        answers.flush()


def _become(message: dict[str, Any]) -> None:
    """Runs the program. Returns, or raises, as the program does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(message["environment"])
    os.chdir(message["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output, errors = (
        os.open(message[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for name in ("output", "errors")
    )
    for target, source in enumerate((nothing, output, errors)):
        os.dup2(source, target)
        os.close(source)
    sys.stdin = os.fdopen(os.dup(0))
    program = message["program"]
    sys.argv = [program, *message["arguments"]]
    if program.endswith(".py"):
        sys.path[0] = os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = os.getcwd()
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
