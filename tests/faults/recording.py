"""Senders and services that write down what they did."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.real_service import RealService
from tests.faults.history import Acked, History, Sent, Stored, checksum
from tests.faults.sender import Sender

from runwatch.codec import CONTENT_TYPE, split_frame
from runwatch_server.telemetry.packs.contents import Contents


@dataclass
class RecordingSender(Sender):
    """A sender whose frames and their answers stand in a history."""

    history: History | None = None

    @classmethod
    def after(
        cls,
        sender: Sender,
        history: History,
        *,
        url: str | None = None,
        attempt: int = 1,
        rank: int = 0,
    ) -> Sender:
        """Goes on with a run that was opened."""
        url = url or sender.url
        return cls(url, sender.key, sender.run_id, sender.http, attempt, rank, history)

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
    """All frames of these runs in a SQLite file, as they are now; also beside the service."""
    with closing(sqlite3.connect(f"file:{service.database}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        note_frames(history, database.execute, run_ids)


def note_frames(
    history: History, query: Callable[[str], Iterable[Any]], run_ids: Sequence[str]
) -> None:
    """All frames of these runs, as rows and in packs. Of a packed frame the index has the checksum
    of what was received; that the objects hold what they held when they were packed is for
    `runwatch_server.telemetry.packs.copies.find_faults` to say."""
    among = ", ".join(f"'{run_id}'" for run_id in run_ids)
    of_runs = f"WHERE run_id IN ({among})"
    for run_id, attempt, rank, seq, body in query(
        f"SELECT run_id, attempt, rank, seq, body FROM frames {of_runs}"
    ):
        history.note(Stored(stream_name(run_id, attempt, rank), seq, checksum(body)))
    for run_id, attempt, rank, packed in query(
        f"SELECT run_id, attempt, rank, contents FROM packs {of_runs}"
    ):
        contents = Contents.decode(packed)
        for seq, frame in enumerate(contents.frames, contents.first_seq):
            history.note(Stored(stream_name(run_id, attempt, rank), seq, frame.checksum))
