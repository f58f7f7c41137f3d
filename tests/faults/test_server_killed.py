"""A service killed in the middle of writes: what it acknowledged is there, once, to the bit."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.history import History
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.waiting import until

pytestmark = pytest.mark.heavy

_KILLS: Final = 3
_WRITERS: Final = 3
_ACKED_BEFORE_KILL: Final = 25
_STEPS: Final = 4


class Writer:
    """One rank, which sends frame after frame until an answer fails to come; then the same one
    again."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.num_acked = 0

    def write_until_killed(self) -> None:
        while self._write(self.num_acked + 1):
            self.num_acked += 1

    def _write(self, seq: int) -> bool:
        """Whether it was acknowledged."""
        losses = np.random.default_rng([self._sender.rank, seq]).normal(size=_STEPS)
        try:
            self._sender.send(seq, losses.tolist(), first_step=_STEPS * (seq - 1))
        except urllib3.exceptions.HTTPError:
            return False
        return True


def test_every_acknowledged_frame_survives_kills_once_and_to_the_bit(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    service = RealService(tmp_path / "service")
    service.start()
    opened = Sender.open(service.url, service.create_key("ingest"), world_size=_WRITERS)
    senders = [RecordingSender.after(opened, history, rank=rank) for rank in range(_WRITERS)]
    writers = [Writer(sender) for sender in senders]
    try:
        for _ in range(_KILLS):
            _write_and_kill(service, writers)
            service.start()
    finally:
        service.stop()

    history.note_log(service.log, opened.key)
    note_stored(history, service, [opened.run_id])
    assert violations(history) == []


def _write_and_kill(service: RealService, writers: Sequence[Writer]) -> None:
    """Kills the service when every writer has had answers, and waits for them to notice."""
    wanted = [writer.num_acked + _ACKED_BEFORE_KILL for writer in writers]
    with ThreadPoolExecutor(len(writers)) as threads:
        done = [threads.submit(writer.write_until_killed) for writer in writers]
        until(
            lambda: (
                any(future.done() for future in done)
                or all(w.num_acked >= n for w, n in zip(writers, wanted, strict=True))
            )
        )
        assert not any(future.done() for future in done)
        service.kill()
        for future in done:
            future.result()
