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
MAX_LAYOUT_BYTES: Final = 32 * 2**20
"""Of all layouts of a run together, as JSON: a dozen of the largest. One answer holds them all."""
_MAX_CACHED_LAYERS: Final = 500_000
"""Some 200 MB: the layouts of 25 models of 20 000 layers, or of 1600 of 300."""
_MAX_CACHED: Final = 20_000
"""Pairs of a run and a layout."""


class Layouts:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._cached: dict[tuple[RunId, str], Layout] = {}
        self._by_hash: dict[str, Layout] = {}
        """Shared by the runs of one model, each of which registers it."""
        self._num_layers = 0
        """Of these."""

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
        found = await connection.execute(
            sa.select(layouts.c.hash, layouts.c.document).where(of_run)
        )
        known = {row.hash: zstd.declared_bytes(row.document) or 0 for row in found}
        if layout.hash in known:
            return False
        document = msgspec.json.encode(layout.to_document())
        num_bytes = sum(known.values()) + len(document)
        if known and (len(known) >= MAX_LAYOUTS or num_bytes > MAX_LAYOUT_BYTES):
            detail = (
                f"A run has at most {MAX_LAYOUTS} layouts, which are sets of layers with their "
                f"shapes, of {MAX_LAYOUT_BYTES >> 20} MiB together; found {len(known) + 1} of "
                f"{num_bytes / 2**20:.1f} MiB."
            )
            raise UnprocessableError("too_many_layouts", detail)
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
        is_new = layout.hash not in self._by_hash
        num_layers = self._num_layers + (len(layout.layers) if is_new else 0)
        if len(self._cached) >= _MAX_CACHED or num_layers > _MAX_CACHED_LAYERS:
            self._cached.clear()
            self._by_hash.clear()
            num_layers = len(layout.layers)
        self._num_layers = num_layers
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
