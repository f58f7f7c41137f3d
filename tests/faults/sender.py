"""A trainer's sending and nothing else: frames, sent again until they are acknowledged."""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import urllib3
from tests.proofs import proof, proof_for, token_of
from tests.waiting import until

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.commands import ACTION_KINDS
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch.ulids import ulid

LAYOUT = Layout(tuple(Layer(f"blocks.{index}") for index in range(8)), ("grad_norm", "nonfinite"))

_NUM_OPENED: Counter[str] = Counter()
"""Attempts of each run."""


class NotNowError(urllib3.exceptions.HTTPError):
    """The service says: come again."""


@dataclass
class Sender:
    """One rank of one attempt of a run."""

    url: str
    key: str
    run_id: str
    http: urllib3.PoolManager
    attempt: int = 1
    rank: int = 0

    @classmethod
    def open(cls, url: str, key: str, *, world_size: int = 1, project: str = "default") -> "Sender":
        """A run with its first attempt."""
        run_id = ulid(int(time.time() * 1000), secrets.token_bytes(10))
        http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(40.0))
        sender = cls(url, key, run_id, http)
        sender.json("POST", "/runs", {"run_id": run_id, "name": "a run", "project": project})
        sender.open_attempt(world_size=world_size)
        layout = LAYOUT.to_document()
        sender.json("PUT", f"/runs/{run_id}/layouts/{LAYOUT.hash}", layout)
        return sender

    def open_attempt(self, *, world_size: int = 1) -> int:
        """The run's next; returns its number."""
        _NUM_OPENED[self.run_id] += 1
        token = token_of(self.run_id, _NUM_OPENED[self.run_id])
        facts = {"token": token, "started_at": 0.0, "allow": ACTION_KINDS, "world_size": world_size}
        number: int = self.json("POST", f"/runs/{self.run_id}/attempts", facts)["attempt"]
        return number

    def json(self, method: str, path: str, message: object = None) -> Any:
        body = None if message is None else msgspec.json.encode(message)
        return self._ask(method, path, body, "application/json")

    def send(self, seq: int, losses: Sequence[float], *, first_step: int, segment: int = 0) -> Any:
        """One frame. Raises urllib3's errors where the service is gone."""
        num = len(losses)
        bad = np.repeat(~np.isfinite(losses), len(LAYOUT.layers)).reshape(num, -1)
        frame = Frame(
            attempt=self.attempt,
            rank=self.rank,
            seq=seq,
            segment=segment,
            first_step=first_step,
            times=np.arange(first_step, first_step + num, dtype=np.float64),
            metric_names=("loss",),
            metrics=np.asarray(losses, np.float64).reshape(num, 1),
            layout_hash=LAYOUT.hash,
            stats=np.concatenate([np.ones_like(bad, np.float32), bad], axis=1, dtype=np.float32),
        )
        return self.send_body(encode_frame(frame))

    def send_body(self, body: bytes) -> Any:
        return self._ask("POST", f"/runs/{self.run_id}/frames", body, CONTENT_TYPE)

    def send_until_acknowledged(self, seq: int, losses: Sequence[float], first_step: int) -> None:
        until(lambda: self._is_acknowledged(seq, losses, first_step))

    def _is_acknowledged(self, seq: int, losses: Sequence[float], first_step: int) -> bool:
        try:
            assert self.send(seq, losses, first_step=first_step)["acked"] == seq
        except urllib3.exceptions.HTTPError:
            return False
        return True

    def _ask(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": kind}
        headers |= proof(self.run_id, self.attempt) if "/receipt" in path else proof_for(path, body)
        url = f"{self.url}/api/v1{path}"
        reply = self.http.request(method, url, body=body, headers=headers)
        if reply.status == 503:
            raise NotNowError(reply.data)
        assert reply.status < 300, reply.data
        return msgspec.json.decode(reply.data)
