"""How much telemetry does one service take, durably and judged by the built-in rules?

A real `runwatch serve` process; client processes that post frames over HTTP as trainers do, each
its own run, one frame in flight. A frame is acknowledged once it is on disk (SQLite with
synchronous=FULL, PostgreSQL as it comes).
Frames are made and packed before the clock starts, so that the clients cost the service little of
the machine's cores. After a clean stop the data directory is measured; then every acknowledged
frame is read back from the database and compared with what was sent.

    python -m benchmarks.ingest --clients 4 --frames 60 --steps 250
    python -m benchmarks.ingest --database postgresql://runwatch@127.0.0.1/empty
"""

import argparse
import multiprocessing
import secrets
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Final

import msgspec
import numpy as np
import urllib3
from benchmarks.harness import (
    Service,
    machine,
    markdown_table,
    quantile,
    running_service,
)
from benchmarks.stored import PostgresStored, SqliteStored, Stored

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch.messages import (
    ATTEMPT_TOKEN_HEADER,
    AttemptClose,
    AttemptOpen,
    AttemptOpened,
    FrameReply,
    RunOpen,
)
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId

METRICS: Final = ("loss", "lr", "grad_norm", "step_time", "tokens_per_s")
STATS: Final = ("grad_norm", "grad_absmax", "param_norm", "update_ratio")
CATCH_UP_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What each client sends."""

    clients: int
    frames: int
    steps: int
    """In a frame."""
    layers: int

    @property
    def values(self) -> int:
        """Over all clients."""
        per_step = self.layers * len(STATS) + len(METRICS)
        return self.clients * self.frames * self.steps * per_step

    @property
    def layout(self) -> Layout:
        layers = (Layer(f"blocks.{index}.weight", (384, 384)) for index in range(self.layers))
        return Layout(tuple(layers), STATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one client did."""

    run_id: RunId
    started_at: float
    ended_at: float
    latencies_s: list[float]
    bodies: dict[int, bytes]
    """By sequence number: those that were acknowledged."""


def make_bodies(load: Load, attempt: int, seed: int) -> list[bytes]:
    """Log-normal random walks: full mantissas, as real norms have, and a time of their own."""
    generator = np.random.default_rng(seed)
    layout = load.layout
    num_steps = load.frames * load.steps
    walk = generator.normal(0, 0.03, (num_steps, layout.num_columns)).cumsum(axis=0)
    stats = np.exp(walk + generator.normal(0, 1, layout.num_columns)).astype(np.float32)
    metrics = np.exp(generator.normal(0, 0.03, (num_steps, len(METRICS))).cumsum(axis=0))
    times = np.arange(num_steps, dtype=np.float64) * 0.1 + time.time()
    return [
        encode_frame(
            Frame(
                attempt=attempt,
                rank=0,
                seq=index + 1,
                segment=0,
                first_step=start,
                times=times[start : start + load.steps],
                metric_names=METRICS,
                metrics=metrics[start : start + load.steps],
                layout_hash=layout.hash,
                stats=stats[start : start + load.steps],
            )
        )
        for index, start in enumerate(range(0, num_steps, load.steps))
    ]


class Trainer:
    """One run, seen from the wire."""

    def __init__(self, url: str, key: str) -> None:
        self.run_id = RunId(ulid(int(time.time() * 1000), secrets.token_bytes(10)))
        self._http = urllib3.PoolManager(maxsize=1, timeout=60.0)
        self._url = f"{url}/api/v1/runs"
        self._token = secrets.token_urlsafe(32)
        self._key = {"Authorization": f"Bearer {key}", ATTEMPT_TOKEN_HEADER: self._token}

    def open(self, layout: Layout) -> int:
        """The attempt's number."""
        self._send("POST", "", msgspec.json.encode(RunOpen(self.run_id, "bench")))
        asked = AttemptOpen(token=self._token, started_at=time.time())
        answer = self._send("POST", f"/{self.run_id}/attempts", msgspec.json.encode(asked))
        document = msgspec.json.encode(layout.to_document())
        self._send("PUT", f"/{self.run_id}/layouts/{layout.hash}", document)
        return msgspec.json.decode(answer, type=AttemptOpened).attempt

    def post(self, body: bytes) -> FrameReply:
        answer = self._send("POST", f"/{self.run_id}/frames", body, CONTENT_TYPE)
        return msgspec.json.decode(answer, type=FrameReply)

    def close(self, attempt: int) -> None:
        close = msgspec.json.encode(AttemptClose("finished"))
        self._send("POST", f"/{self.run_id}/attempts/{attempt}/close", close)

    def _send(
        self, method: str, path: str, body: bytes, content_type: str = "application/json"
    ) -> bytes:
        headers = {**self._key, "Content-Type": content_type}
        answer = self._http.request(method, self._url + path, body=body, headers=headers)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.data[:500]!r}")
        return answer.data


def send_all(
    url: str, key: str, load: Load, seed: int, ready: Barrier, done: "multiprocessing.Queue[Sent]"
) -> None:
    """A client process, from its first request to its last acknowledgement."""
    trainer = Trainer(url, key)
    bodies = make_bodies(load, trainer.open(load.layout), seed)
    acknowledged: dict[int, bytes] = {}
    latencies: list[float] = []
    ready.wait()
    started_at = time.monotonic()
    for body in bodies:
        sent_at = time.perf_counter()
        reply = trainer.post(body)
        latencies.append(time.perf_counter() - sent_at)
        acknowledged[reply.acked] = body
    done.put(
        Sent(
            run_id=trainer.run_id,
            started_at=started_at,
            ended_at=time.monotonic(),
            latencies_s=latencies,
            bodies=acknowledged,
        )
    )


def drive(service: Service, load: Load) -> list[Sent]:
    """All clients at once, from one starting signal."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(load.clients)
    done: multiprocessing.Queue[Sent] = context.Queue()
    key = service.process.admin_key
    clients = [
        context.Process(target=send_all, args=(service.url, key, load, seed, ready, done))
        for seed in range(load.clients)
    ]
    for client in clients:
        client.start()
    sent = [done.get(timeout=600) for _ in clients]
    for client in clients:
        client.join()
    return sent


def wait_until_judged(stored: Stored, load: Load) -> float:
    """Until the rules have been held against every frame; the monotonic time when it is so."""
    deadline = time.monotonic() + CATCH_UP_S
    judged = 0
    while time.monotonic() < deadline:
        judged = stored.num_judged()
        if judged == load.clients * load.frames:
            return time.monotonic()
        time.sleep(0.02)
    raise TimeoutError(f"only {judged} frames were judged within {CATCH_UP_S:.0f} s")


def read_back(stored: Stored, sent: list[Sent]) -> int:
    """How many acknowledged frames the database holds, byte for byte."""
    found = 0
    for client in sent:
        held = stored.bodies(client.run_id)
        found += sum(held.get(seq) == body for seq, body in client.bodies.items())
    return found


def main() -> None:
    load, database_url = _options()
    print(f"\n{machine()}")
    on_postgres = None if database_url is None else PostgresStored(database_url)
    with running_service(database_url) as service:
        stored: Stored = on_postgres or SqliteStored(service.data_dir)
        sent = drive(service, load)
        judged_at = wait_until_judged(stored, load)
        service.process.stop()
        stored_bytes = stored.num_bytes()
        found = read_back(stored, sent)
    print(f"\n{stored.engine}:")
    _report(load, sent, judged_at, stored_bytes, found)


def _report(load: Load, sent: list[Sent], judged_at: float, stored_bytes: int, found: int) -> None:
    started_at = min(client.started_at for client in sent)
    seconds = max(client.ended_at for client in sent) - started_at
    latencies_ms = [1000 * latency for client in sent for latency in client.latencies_s]
    num_acknowledged = sum(len(client.bodies) for client in sent)
    rows = [
        ("values acknowledged a second", f"{load.values / seconds:,.0f}"),
        ("values judged a second", f"{load.values / (judged_at - started_at):,.0f}"),
        ("frames acknowledged a second", f"{num_acknowledged / seconds:,.0f}"),
        ("acknowledgement, p50", f"{quantile(latencies_ms, 0.5):.1f} ms"),
        ("acknowledgement, p99", f"{quantile(latencies_ms, 0.99):.1f} ms"),
        ("bytes a value on disk", f"{stored_bytes / load.values:.2f}"),
        ("acknowledged frames read back", f"{found} of {num_acknowledged}"),
    ]
    print(
        f"\n{load.clients} clients, {load.frames} frames each of {load.steps} steps, "
        f"{load.layers} layers x {len(STATS)} stats + {len(METRICS)} metrics: "
        f"{load.values:,} values in {seconds:.1f} s; built-in rules on\n"
    )
    print(markdown_table(("what", "figure"), rows))


def _options() -> tuple[Load, str | None]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--frames", type=int, default=60, help="of each client")
    parser.add_argument("--steps", type=int, default=250, help="of each frame")
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--database", help="URL of an empty PostgreSQL; by default SQLite")
    options = vars(parser.parse_args())
    database_url: str | None = options.pop("database")
    return Load(**options), database_url


if __name__ == "__main__":
    main()
