"""No Python that we start imports modules from the folder that it is started in.

A folder that others can write to (/tmp, a shared project) may hold a `msgspec.py`.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.house.documents import ROOT
from tests.waiting import LONGEST_S

PRODUCT = ("watchdog", "hooks", "server", "migrations")

HOSTILE = """
import os
open(os.environ["MARK"], "w").write("imported")
raise SystemExit(9)
"""


def starts(file: Path) -> Iterator[Sequence[ast.expr]]:
    """What follows each `sys.executable` in an argument list."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.List(elts=arguments) | ast.Tuple(elts=arguments) | ast.Call(args=arguments):
                pass
            case _:
                continue
        for place, argument in enumerate(arguments):
            if ast.unparse(argument) == "sys.executable" and arguments[place + 1 :]:
                yield arguments[place + 1 :]


def test_every_python_is_started_with_a_safe_path() -> None:
    found = {
        str(file.relative_to(ROOT)): ast.unparse(after[0])
        for folder in PRODUCT
        for file in (ROOT / folder).rglob("*.py")
        for after in starts(file)
        if not isinstance(after[0], ast.List)  # os.execv names the program twice
    }

    assert len(found) >= 8
    assert set(found.values()) == {"'-P'"}, found


@pytest.mark.slow
@pytest.mark.parametrize("command", [("sync", "nothing"), ("doctor",), ("replay", "nothing")])
def test_command_imports_nothing_from_its_folder(tmp_path: Path, command: Sequence[str]) -> None:
    mark = tmp_path / "mark"
    for name in ("msgspec", "numpy", "urllib3"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    program = "import sys; sys.path.remove(''); from runwatch_server.cli import main; main()"

    subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=tmp_path,
        env=os.environ | {"MARK": str(mark), "RUNWATCH_URL": "http://127.0.0.1:1"},
        capture_output=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert not mark.exists()
