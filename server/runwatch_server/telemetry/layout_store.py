"""Registers layouts, each once per run, and caches them by their hash."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch import zstd
from runwatch.layouts import Layout
from runwatch.vocabulary import RunId
from runwatch_server.clock import Clock
from runwatch_server.db import Database
from runwatch_server.errors import ConflictError, UnprocessableError
from runwatch_server.runs.checks import existing_run
from runwatch_server.telemetry.tables import layouts
from runwatch_server.web.zero_bytes import check_json_texts

MAX_LAYOUTS: Final = 50
"""Most layouts of a run. A run with more of them probably puts its step into names."""
_MAX_CACHED: Final = 2_000


class Layouts:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._cached: dict[tuple[RunId, str], Layout] = {}
        self._by_hash: dict[str, Layout] = {}
        """Shared by the runs of one model, each of which registers it."""

    async def put(self, run_id: RunId, layout_hash: str, body: bytes) -> bool:
        """Register a layout; returns whether it is new. Raises LayoutError or
        UnprocessableError."""
        check_json_texts("body", body)
        try:
            document: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnprocessableError("invalid_body", f"body: {error}") from error
        layout = Layout.from_document(document)
        if layout.hash != layout_hash:
            raise UnprocessableError(
                "wrong_hash", f"hash: found {layout_hash} in the path, wanted {layout.hash}"
            )
        is_new = await self._database.write(
            lambda connection: self._insert(connection, run_id, layout), of=run_id
        )
        self._remember(run_id, layout)
        return is_new

    async def find(self, run_id: RunId, layout_hash: str) -> Layout:
        """Raises ConflictError if the run has no such layout yet."""
        cached = self._cached.get((run_id, layout_hash))
        if cached is not None:
            return cached
        async with self._database.read() as connection:
            data = await connection.scalar(
                sa.select(layouts.c.document).where(
                    layouts.c.run_id == run_id, layouts.c.hash == layout_hash
                )
            )
        if data is None:
            raise ConflictError(
                "unknown_layout",
                f"The layout {layout_hash[:80]!r} is not registered: PUT .../layouts/<hash>.",
            )
        return self._remember(run_id, _unpack(data))

    async def all(self, run_id: RunId) -> list[Layout]:
        """A run's layouts, oldest first."""
        async with self._database.read() as connection:
            found = await connection.scalars(
                sa.select(layouts.c.hash)
                .where(layouts.c.run_id == run_id)
                .order_by(layouts.c.created_at, layouts.c.hash)
            )
            hashes = list(found)
        return [await self.find(run_id, layout_hash) for layout_hash in hashes]

    async def num_layers(self, run_id: RunId) -> int:
        """How many layers an evaluator of the run has at most at a time: layouts with the same
        stats take each other's place, and those with other stats stand beside them."""
        async with self._database.read() as connection:
            found = await connection.scalars(
                sa.select(layouts.c.document).where(layouts.c.run_id == run_id)
            )
            documents = list(found)
        return await asyncio.to_thread(_num_layers, documents)

    def forget(self, run_id: RunId) -> None:
        """Drop a deleted run's layouts: a new run under its id has registered none yet."""
        for key in [key for key in self._cached if key[0] == run_id]:
            del self._cached[key]

    async def _insert(self, connection: AsyncConnection, run_id: RunId, layout: Layout) -> bool:
        await existing_run(connection, run_id)
        of_run = layouts.c.run_id == run_id
        known = set(await connection.scalars(sa.select(layouts.c.hash).where(of_run)))
        if layout.hash in known:
            return False
        if len(known) >= MAX_LAYOUTS:
            detail = f"A run has at most {MAX_LAYOUTS} layouts: sets of layers with their shapes."
            raise UnprocessableError("too_many_layouts", detail)
        document = msgspec.json.encode(layout.to_document())
        await connection.execute(
            layouts.insert().values(
                run_id=run_id,
                hash=layout.hash,
                document=zstd.compress(document),
                created_at=self._clock.wall(),
            )
        )
        return True

    def _remember(self, run_id: RunId, layout: Layout) -> Layout:
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
            self._by_hash.clear()
        layout = self._by_hash.setdefault(layout.hash, layout)
        self._cached[run_id, layout.hash] = layout
        return layout


class _Sizes(msgspec.Struct):
    layers: list[msgspec.Raw]
    stats: tuple[str, ...]


def _num_layers(documents: Iterable[bytes]) -> int:
    most: dict[tuple[str, ...], int] = {}
    for document in documents:
        sizes = msgspec.json.decode(zstd.decompress(document), type=_Sizes)
        most[sizes.stats] = max(len(sizes.layers), most.get(sizes.stats, 0))
    return sum(most.values())


def _unpack(data: bytes) -> Layout:
    return Layout.from_document(msgspec.json.decode(zstd.decompress(data)))
