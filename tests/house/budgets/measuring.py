"""All figures, by the names of their budgets."""

import json
import subprocess
import sys
from functools import cache

from tests.house.budgets import sizes, transactions
from tests.house.documents import ROOT


@cache
def measured() -> dict[str, float]:
    return sizes.figures() | transactions.figures() | _traced("step") | _traced("service")


def _traced(program: str) -> dict[str, float]:
    """In a process of its own: what else a process has done changes what it calls."""
    done = subprocess.run(
        (sys.executable, "-m", f"tests.house.budgets.{program}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found
