"""Senders and services that write down what they did."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.end_to_end.real_service import RealService
from tests.faults.history import Acked, History, Sent, Stored, checksum
from tests.faults.sender import Sender

from runwatch.codec import CONTENT_TYPE, split_frame


@dataclass
class RecordingSender(Sender):
    """A sender whose frames and their answers stand in a history."""

    history: History | None = field(default=None)

    @classmethod
    def after(cls, sender: Sender, history: History, *, url: str | None = None) -> Sender:
        """Goes on with a run that was opened."""
        return cls(url or sender.url, sender.key, sender.run_id, sender.http, history)

    def _ask(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        if kind != CONTENT_TYPE or body is None or self.history is None:
            return super()._ask(method, path, body, kind)
        header, _ = split_frame(body)
        stream = stream_name(self.run_id, header.attempt, header.rank)
        self.history.note(Sent(stream, header.seq, checksum(body)))
        answer = super()._ask(method, path, body, kind)
        self.history.note(Acked(stream, header.seq))
        return answer


def stream_name(run_id: str, attempt: int, rank: int) -> str:
    return f"{run_id}/{attempt}/{rank}"


def note_stored(history: History, service: RealService, run_ids: Sequence[str]) -> None:
    """All rows of these runs, as they are now; also beside the running service."""
    with closing(sqlite3.connect(f"file:{service.database}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for run_id in run_ids:
            for attempt, rank, seq, body in database.execute(
                "SELECT attempt, rank, seq, body FROM frames WHERE run_id = ?", (run_id,)
            ):
                history.note(Stored(stream_name(run_id, attempt, rank), seq, checksum(body)))
