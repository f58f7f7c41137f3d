"""The guard over the connections of receivers, where no receiver is at work."""

import subprocess
import sys
from typing import Final

from tests.waiting import LONGEST_S

_ENDS_WITH_AN_EVENT: Final = """
import sys
from runwatch_server.notify import networks

class Late:
    def __del__(self):
        sys.audit("after the module's own names are gone")

with networks.guarded_by(networks.ConnectionGuard(())):
    pass
networks.late = Late()
"""


def test_the_guard_says_nothing_as_the_interpreter_ends() -> None:
    """Its hook can never be removed, and outlives the names of its module."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_WITH_AN_EVENT],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
