"""A program that never calls `finish` is told as what it was: by real processes, to a service."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving

_TIMEOUT_S = 240

_PLAIN = """
import multiprocessing
import sys
import threading
from runwatch_hooks.plain import open_run

def open_one():
    return open_run("left", url=sys.argv[1], token=sys.argv[2], spool=sys.argv[3])

def train(run, first=0):
    for step in range(first, first + 10):
        run.step(1.0)
"""

_WATCHED = """
import multiprocessing
import sys
import threading
import torch
from runwatch_hooks import attach

def open_one():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return attach(
        model, optimizer, run="left", url=sys.argv[1], token=sys.argv[2], spool=sys.argv[3]
    )

def train(watch, first=0):
    for step in range(first, first + 10):
        watch.step(1.0)
"""

_MAIN = """
def main():
    train(open_one())
    {last_line}

if __name__ == "__main__":
    {call}
"""

_IN_A_THREAD = """
def work(run):
    train(run)
    raise ValueError("diverged")

run = open_one()
thread = threading.Thread(target=work, args=(run,))
thread.start()
thread.join()
"""

_IN_A_CHILD = """
def work():
    train(open_one())
    {last_line}

if __name__ == "__main__":
    child = multiprocessing.get_context("{method}").Process(target=work)
    child.start()
    child.join()
"""


@pytest.fixture
def service() -> Iterator[StubService]:
    with serving(StubService()) as stub:
        yield stub


def ending(
    folder: Path, service: StubService, program: str
) -> tuple[subprocess.CompletedProcess[str], list[tuple[str, str]]]:
    """How a program went, and how the service was told that its run had ended."""
    script = folder / "train.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), service.url, TOKEN, str(folder / "spool")],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    return done, [(one.status, one.reason) for one in service.closings]


@pytest.mark.parametrize(
    ("last_line", "call", "told"),
    [
        ("return 0", "main()", ("finished", "")),
        ("return 0", "sys.exit(main())", ("finished", "")),
        ("sys.exit(3)", "sys.exit(main())", ("failed", "SystemExit: 3")),
        ("exit(4)", "main()", ("failed", "SystemExit: 4")),
        ("return 5", "exit(main())", ("failed", "SystemExit: 5")),
        ("return 6", "sys.exit(main())", ("failed", "SystemExit: 6")),
        ("quit()", "main()", ("finished", "")),
        ("raise KeyboardInterrupt", "main()", ("stopped", "KeyboardInterrupt")),
        ("raise ValueError('no data')", "main()", ("failed", "ValueError: no data")),
    ],
)
def test_a_program_is_told_as_what_it_was(
    tmp_path: Path, service: StubService, last_line: str, call: str, told: tuple[str, str]
) -> None:
    program = _PLAIN + _MAIN.format(last_line=last_line, call=call)
    _, found = ending(tmp_path, service, program)

    assert found == [told]
    assert service.steps == list(range(10))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 tells nobody of it")
@pytest.mark.parametrize(
    ("last_line", "call", "told"),
    [
        ("raise SystemExit(7)", "main()", ("failed", "SystemExit: 7")),
        ("return 8", "raise SystemExit(main())", ("failed", "SystemExit: 8")),
        ("return", "raise SystemExit(main())", ("finished", "")),
        (
            "try:\n        sys.exit(9)\n    except SystemExit:\n        return 0",
            "sys.exit(main())",
            ("finished", ""),
        ),
    ],
)
def test_a_program_is_told_by_the_exit_that_left_it(
    tmp_path: Path, service: StubService, last_line: str, call: str, told: tuple[str, str]
) -> None:
    program = _PLAIN + _MAIN.format(last_line=last_line, call=call)
    _, found = ending(tmp_path, service, program)

    assert found == [told]


@pytest.mark.slow
def test_a_watch_that_its_function_let_go_ends_with_the_program(
    tmp_path: Path, service: StubService
) -> None:
    """Not with the function: how it went, the program says by its code."""
    program = _WATCHED + _MAIN.format(last_line="return 6", call="sys.exit(main())")
    _, found = ending(tmp_path, service, program)

    assert found == [("failed", "SystemExit: 6")]
    assert service.steps == list(range(10))


def test_what_was_on_its_way_is_named_beside_the_exit(tmp_path: Path, service: StubService) -> None:
    handled = "try:\n    {}[1]\nexcept KeyError:\n    sys.exit('no luck')\n"
    _, found = ending(tmp_path, service, f"{_PLAIN}\ntrain(open_one())\n{handled}")

    assert found == [("failed", "SystemExit: no luck, after KeyError: 1")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [_PLAIN, _WATCHED], ids=["plain", "watch"])
def test_a_training_that_dies_in_a_thread_has_failed_at_once(
    tmp_path: Path, service: StubService, kind: str
) -> None:
    afterwards = "\nprint('alive')\nrun.step(1.0)\nrun.finish()\n"
    done, found = ending(tmp_path, service, kind + _IN_A_THREAD + afterwards)

    assert (done.returncode, done.stdout) == (0, "alive\n")
    assert "ValueError: diverged" in done.stderr
    assert found == [("failed", "ValueError: diverged")]
    assert service.steps == list(range(10))


def test_a_thread_that_trains_nothing_may_die(tmp_path: Path, service: StubService) -> None:
    others = (
        "run = open_one()\nthread = threading.Thread(target=lambda: 1 / 0)\n"
        "train(run)\nthread.start()\nthread.join()\ntrain(run, first=10)\n"
    )
    done, found = ending(tmp_path, service, _PLAIN + others)

    assert "ZeroDivisionError" in done.stderr
    assert found == [("finished", "")]
    assert service.steps == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize(
    ("last_line", "told"),
    [
        ("", ("finished", "")),
        ("raise ValueError('no data')", ("failed", "ValueError: no data")),
        ("raise SystemExit(5)", ("failed", "SystemExit: 5")),
    ],
)
def test_a_child_of_multiprocessing_delivers_and_ends_its_run(
    tmp_path: Path, service: StubService, method: str, last_line: str, told: tuple[str, str]
) -> None:
    program = _PLAIN + _IN_A_CHILD.format(last_line=last_line, method=method)
    _, found = ending(tmp_path, service, program)

    assert found == [told]
    assert service.steps == list(range(10))


@pytest.mark.slow
def test_a_launched_rank_that_dies_is_told_with_its_error(
    tmp_path: Path, service: StubService
) -> None:
    """As Accelerate's `notebook_launcher` launches it: the error goes to a file, then sys.exit."""
    program = _WATCHED + _IN_A_CHILD.partition("if __name__")[0].format(
        last_line="raise ValueError('no data')"
    )
    launch = (
        "torch.multiprocessing.start_processes(lambda _: work(), nprocs=1, start_method='fork')"
    )
    done, found = ending(tmp_path, service, f"{program}\n{launch}\n")

    assert done.returncode == 1
    assert found == [("failed", "SystemExit: 1, after ValueError: no data")]
    assert service.steps == list(range(10))
