"""The whole service over its real interface, without a socket, on a directory of the test's own."""

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from fastapi import FastAPI
from numpy.typing import NDArray
from tests.proofs import proof, proof_for, token_of
from tests.waiting import until_told

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Event, Frame
from runwatch.layouts import Layer, Layout
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_server.app import make_app
from runwatch_server.auth.service import NewKey
from runwatch_server.clock import Clock
from runwatch_server.db import Database, make_store
from runwatch_server.db.sqlite import DATABASE_FILE, SqliteStore
from runwatch_server.schema import upgrade_schema
from runwatch_server.services import Services
from runwatch_server.settings import Settings

LAYOUT = Layout((Layer("first.weight", (4, 4)), Layer("last.weight", (4,))), ("grad_norm",))


both_engines = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.heavy)], indirect=True
)
"""Runs a test, or a module's tests, on SQLite and on PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a service keeps, and where."""

    data_dir: Path
    database_url: str | None = None


@dataclass
class HandClock:
    """Both clocks, moved by the test."""

    now: float = field(default_factory=time.time)

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, monotonic=lambda: self.now)


@dataclass
class Api:
    """A client of the service; `admin_key` is the first one."""

    app: FastAPI
    http: httpx.AsyncClient
    admin_key: str

    @property
    def services(self) -> Services:
        services = self.app.state.services
        assert isinstance(services, Services)
        return services

    async def call(
        self, method: str, path: str, *, key: str | None = None, **arguments: Any
    ) -> httpx.Response:
        """A request under /api/v1 with the admin key, or another; "" sends none. What trainers
        send proves which attempt it comes from, unless the headers say otherwise."""
        headers = await self._proof(path, arguments) | arguments.pop("headers", {})
        token = self.admin_key if key is None else key
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return await self.http.request(method, f"/api/v1{path}", headers=headers, **arguments)

    async def _proof(self, path: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """For a request with these arguments."""
        if path.endswith("/receipt"):
            _, _, command_id, _ = path.split("/")
            found = (await self.call("GET", f"/commands/{command_id}")).json()
            return proof(found["run_id"], found["attempt"]) if "run_id" in found else {}
        query: Mapping[str, Any] = arguments.get("params") or {}
        if "attempt" in query:
            path = f"{path}?attempt={query['attempt']}"
        body = arguments.get("content") or json.dumps(arguments.get("json")).encode()
        return proof_for(path, body)

    async def json(self, method: str, path: str, **arguments: Any) -> Any:
        response = await self.call(method, path, **arguments)
        assert response.is_success, response.text
        return response.json()

    async def new_key(self, *scopes: str, **facts: object) -> str:
        body = {"name": "test", "scopes": scopes, **facts}
        created: dict[str, str] = await self.json("POST", "/keys", json=body)
        return created["key"]

    async def new_run(self, *, project: str = "default", **attempt: object) -> RunId:
        """A run with its first attempt open and LAYOUT registered."""
        run_id = new_id()
        await self.json(
            "POST", "/runs", json={"run_id": run_id, "name": "test", "project": project}
        )
        await self.new_attempt(run_id, **attempt)
        await self.put_layout(run_id, LAYOUT)
        return run_id

    async def new_attempt(self, run_id: RunId, **facts: object) -> int:
        known = await self.json("GET", f"/runs/{run_id}/attempts")
        token = token_of(run_id, len(known["attempts"]) + 1)
        body = {"token": token, "started_at": 1.7e9, **facts}
        opened: dict[str, int] = await self.json("POST", f"/runs/{run_id}/attempts", json=body)
        return opened["attempt"]

    async def put_layout(self, run_id: RunId, layout: Layout) -> None:
        path = f"/runs/{run_id}/layouts/{layout.hash}"
        await self.json("PUT", path, content=msgspec.json.encode(layout.to_document()))

    async def post_body(
        self, run_id: RunId, body: bytes, *, params: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return await self.call(
            "POST",
            f"/runs/{run_id}/frames",
            content=body,
            headers={"Content-Type": CONTENT_TYPE},
            params=params,
        )

    async def until_judged(self, *run_ids: RunId) -> None:
        """Until the rules have seen all that these runs have sent, and what came of it is told."""
        is_drained = self.services.evaluators.is_drained

        async def is_judged(run_id: RunId) -> bool:
            found = await self.json("GET", "/alerts", params={"run_id": run_id})
            return bool(found["judged"]) and is_drained(run_id)

        for run_id in run_ids:
            await until_told(partial(is_judged, run_id))

    async def post(self, run_id: RunId, sent: Frame, *, late: bool = False) -> httpx.Response:
        params = {"late": "true"} if late else None
        return await self.post_body(run_id, encode_frame(sent), params=params)

    async def series(self, run_id: RunId, **params: object) -> Any:
        return await self.json("GET", f"/runs/{run_id}/series", params=params)


@asynccontextmanager
async def serve(
    storage: Storage | Path,
    *,
    clock: HandClock | None = None,
    admin_key: str = "",
    **settings: Any,
) -> AsyncGenerator[Api]:
    """A life of the service; with the `admin_key` of an earlier one, a restart. A path is that of
    a data directory with SQLite. Tests ask without a pause: no limit of requests, unless given;
    they roll up when they say so; and judging is on a thread, on PostgreSQL too, since a process
    takes a second to start."""
    settings.setdefault("requests_per_s", 1e6)
    settings.setdefault("judge_processes", 0)
    settings.setdefault("rollup_every_s", 3600.0)
    kept = Storage(storage) if isinstance(storage, Path) else storage
    await bring_tables(kept)
    first: list[NewKey] = []
    app = make_app(
        Settings(data_dir=kept.data_dir, database_url=kept.database_url, **settings),
        clock=None if clock is None else clock.clock(),
        on_first_key=first.append,
    )
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        yield Api(app, http, first[0].text if first else admin_key)


@asynccontextmanager
async def open_database(storage: Storage) -> AsyncGenerator[Database]:
    """A database with our tables, without a service."""
    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        await database.migrate(upgrade_schema)
        database.start()
        yield database


_MIGRATED: list[bytes] = []
"""A database of SQLite as the migrations leave it, once it was made: they are half of a start."""


async def bring_tables(storage: Storage) -> None:
    """Where a service is to start for the first time. What migrations do has tests of its own."""
    file = storage.data_dir / DATABASE_FILE
    if storage.database_url is not None or file.exists():
        return
    if not _MIGRATED:
        with TemporaryDirectory() as folder:
            async with Database(SqliteStore(Path(folder))) as database:
                await database.migrate(upgrade_schema)
            _MIGRATED.append((Path(folder) / DATABASE_FILE).read_bytes())
    storage.data_dir.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_MIGRATED[0])


def new_id() -> RunId:
    return RunId(ulid(int(time.time() * 1000), secrets.token_bytes(10)))


def frame(
    seq: int,
    losses: list[float] | NDArray[np.float64],
    *,
    first_step: int = 0,
    attempt: int = 1,
    segment: int = 0,
    metric: str = "loss",
    stats: NDArray[np.float32] | None = None,
    events: tuple[Event, ...] = (),
) -> Frame:
    """A frame of one metric, and of LAYOUT's stats where they are given."""
    num_steps = len(losses)
    return Frame(
        attempt=attempt,
        rank=0,
        seq=seq,
        segment=segment,
        first_step=first_step,
        times=1.7e9 + first_step % 10**9 + np.arange(num_steps, dtype=np.float64),
        metric_names=(metric,),
        metrics=np.array(losses, np.float64).reshape(num_steps, 1),
        layout_hash="" if stats is None else LAYOUT.hash,
        stats=np.empty((num_steps, 0), np.float32) if stats is None else stats,
        events=events,
    )
