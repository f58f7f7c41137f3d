"""A trainer's process that stood still while its job was started anew, and comes back: it is
refused, and nothing of its own stands in the new attempt."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import Acked, History
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.faults.sending_process import FENCED
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.heavy

_ROOT: Final = Path(__file__).parents[2]


def end(process: "subprocess.Popen[bytes]") -> None:
    """Also one that stands still."""
    process.kill()
    process.wait()


def num_acked(history: History) -> int:
    if not history.path.exists():
        return 0
    return sum(isinstance(fact, Acked) for fact in history.facts())


def test_an_old_attempt_that_comes_back_is_refused(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    with RealService(tmp_path / "service") as service, ExitStack() as stack:
        opened = Sender.open(service.url, service.create_key("ingest"))
        module = (sys.executable, "-m", "tests.faults.sending_process")
        old = subprocess.Popen(
            [*module, opened.url, opened.run_id, str(history.path)],
            cwd=_ROOT,
            env=os.environ | {"KEY": opened.key},
        )
        stack.callback(end, old)
        until(lambda: num_acked(history) >= 10)
        old.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, old.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

        attempt = opened.open_attempt()
        new = RecordingSender.after(opened, history, attempt=attempt)
        for seq in range(1, 11):
            new.send(seq, [-1.0, -1.0], first_step=2 * (seq - 1))
        old.send_signal(signal.SIGCONT)
        assert old.wait(LONGEST_S) == FENCED
        new.send(11, [-1.0, -1.0], first_step=20)

        path = f"/runs/{opened.run_id}/series?metric=loss&attempt={attempt}"
        assert set(service.ask("GET", path)["values"]) == {-1.0}
        history.note_log(service.log, opened.key)
        note_stored(history, service, [opened.run_id])
    assert violations(history) == []
