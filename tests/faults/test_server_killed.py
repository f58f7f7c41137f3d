"""A service killed in the middle of writes: what it acknowledged is there, once, to the bit."""

import secrets
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import urllib3
from tests.end_to_end.real_service import RealService

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Frame
from runwatch.ulids import ulid

pytestmark = pytest.mark.heavy

_KILLS: Final = 3
_WRITERS: Final = 3
_ACKED_BEFORE_KILL: Final = 25


class Writer:
    """One attempt's rank, which sends frame after frame until an answer fails to come."""

    def __init__(self, service: RealService, key: str, run_id: str, rank: int) -> None:
        self._http = urllib3.PoolManager(retries=False, timeout=30.0)
        self._url = f"{service.url}/api/v1/runs/{run_id}/frames"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": CONTENT_TYPE}
        self._rank = rank
        self.sent: dict[int, bytes] = {}
        self.acked: set[int] = set()

    def write_until_killed(self) -> None:
        seq = max(self.acked, default=0) + 1
        while self._post(seq):
            self.acked.add(seq)
            seq += 1

    def _post(self, seq: int) -> bool:
        """Whether it was acknowledged; a frame whose answer was lost is sent again as it was."""
        body = self.sent.setdefault(seq, self._frame(seq))
        try:
            reply = self._http.request("POST", self._url, body=body, headers=self._headers)
        except urllib3.exceptions.HTTPError:
            return False
        assert reply.status == 200, reply.data
        return True

    def _frame(self, seq: int) -> bytes:
        losses = np.random.default_rng([self._rank, seq]).normal(size=(4, 1))
        frame = Frame(
            attempt=1,
            rank=self._rank,
            seq=seq,
            segment=0,
            first_step=4 * (seq - 1),
            times=1.7e9 + np.arange(4.0),
            metric_names=("loss",),
            metrics=losses,
        )
        return encode_frame(frame)


def test_every_acknowledged_frame_survives_kills_once_and_to_the_bit(tmp_path: Path) -> None:
    service = RealService(tmp_path)
    service.start()
    key = service.create_key("ingest")
    run_id = _open_run(service, key)
    writers = [Writer(service, key, run_id, rank) for rank in range(_WRITERS)]
    try:
        for _ in range(_KILLS):
            _write_and_kill(service, writers)
            service.start()
    finally:
        service.stop()

    stored = _stored(tmp_path / "data" / "runwatch.db")
    for rank, writer in enumerate(writers):
        held = {seq: body for (owner, seq), body in stored.items() if owner == rank}
        assert writer.acked <= held.keys()
        assert held == {seq: writer.sent[seq] for seq in held}


def _write_and_kill(service: RealService, writers: list[Writer]) -> None:
    """Kills the service when every writer has had answers, and waits for them to notice."""
    wanted = [len(writer.acked) + _ACKED_BEFORE_KILL for writer in writers]
    with ThreadPoolExecutor(len(writers)) as threads:
        done = [threads.submit(writer.write_until_killed) for writer in writers]
        deadline = time.monotonic() + 60
        while any(len(w.acked) < n for w, n in zip(writers, wanted, strict=True)):
            assert time.monotonic() < deadline
            assert not any(future.done() for future in done)
            time.sleep(0.002)
        service.kill()
        for future in done:
            future.result()


def _open_run(service: RealService, key: str) -> str:
    http = urllib3.PoolManager(retries=False, timeout=30.0)
    headers = {"Authorization": f"Bearer {key}"}
    run_id, token = (ulid(1, secrets.token_bytes(10)) for _ in range(2))
    url = f"{service.url}/api/v1/runs"
    run = {"run_id": run_id, "name": "killed"}
    attempt = {"token": token, "started_at": 1.7e9, "world_size": _WRITERS}
    assert http.request("POST", url, json=run, headers=headers).status == 201
    path = f"{url}/{run_id}/attempts"
    assert http.request("POST", path, json=attempt, headers=headers).status == 200
    http.clear()
    return run_id


def _stored(path: Path) -> dict[tuple[int, int], bytes]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("SELECT rank, seq, body FROM frames").fetchall()
    finally:
        connection.close()
    found = {(rank, seq): bytes(body) for rank, seq, body in rows}
    assert len(found) == len(rows)
    return found
