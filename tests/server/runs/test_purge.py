"""What a removed run has left is found without reading all that others have stored."""

import numpy as np
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, Storage, both_engines, frame, open_database, serve
from tests.server.plans import plan_of

from runwatch.vocabulary import RunId
from runwatch_server.db import Database
from runwatch_server.runs.purge import has_remains, orphans_in, purge_orphans
from runwatch_server.runs.tables import runs
from runwatch_server.telemetry.tables import frames

pytestmark = pytest.mark.anyio


async def new_run(api: Api) -> RunId:
    run_id = await api.new_run()
    for seq in range(1, 4):
        stats = np.ones((5, 2), np.float32)
        await api.post(run_id, frame(seq, [1.0] * 5, first_step=5 * (seq - 1), stats=stats))
    await api.until_judged(run_id)
    return run_id


async def remove_row(database: Database, *run_ids: RunId) -> None:
    """As a removal leaves the rest that is cut off after its first transaction."""

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(runs.delete().where(runs.c.id.in_(run_ids)))

    await database.write(work)


async def left(database: Database, *run_ids: RunId) -> list[bool]:
    async with database.read() as connection:
        return [await has_remains(connection, run_id) for run_id in run_ids]


# The service has stopped meanwhile: one that goes on still stores what it knows of these runs, such
# as the signs of life that replicas share.
@both_engines
async def test_the_rest_of_a_removal_that_was_cut_off_is_removed(storage: Storage) -> None:
    async with serve(storage) as api:
        first, kept, last = sorted([await new_run(api) for _ in range(3)])
    async with open_database(storage) as database:
        await remove_row(database, first, last)

        assert await purge_orphans(database) == 2
        assert await left(database, first, kept, last) == [False, True, False]

        await remove_row(database, kept)  # and no run is left
        assert await purge_orphans(database) == 1
        assert await purge_orphans(database) == 0


async def test_frames_are_not_read_as_a_whole(database: Database) -> None:
    async def ask(connection: AsyncConnection) -> None:
        await connection.execute(orphans_in(frames))

    found = await plan_of(database, ask)

    assert [step for step in found if step.startswith("SCAN frames")] == []
