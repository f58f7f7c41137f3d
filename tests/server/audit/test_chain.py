"""The audit's chain: what was written down is found as it was, or the place is named."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, Storage, both_engines, serve

from runwatch_server.audit.chain import find_breaks
from runwatch_server.audit.tables import audit
from runwatch_server.db import Database, make_store

pytestmark = [pytest.mark.anyio, both_engines]

Change = Callable[[], sa.Executable]


async def breaks_after(storage: Storage, *changes: Change) -> list[str]:
    """What is found when somebody who can write to the database has done so."""
    async with Database(make_store(storage.data_dir, storage.database_url)) as database:
        database.start()

        async def work(connection: AsyncConnection) -> list[str]:
            for change in changes:
                await connection.execute(change())
            return await find_breaks(connection)

        return await database.write(work)


async def write_deeds(storage: Storage) -> list[dict[str, object]]:
    """Four, the first of them the first key; oldest first."""
    async with serve(storage) as api:
        await make_three(api)
        deeds: list[dict[str, object]] = (await api.json("GET", "/audit"))["deeds"]
    return deeds[::-1]


async def make_three(api: Api) -> None:
    key = await api.new_key("read", project="ours")
    await api.new_key("ingest")
    await api.call("DELETE", f"/keys/{key.split('_')[1]}")


async def test_making_and_revoking_keys_is_written_down_and_holds_together(
    storage: Storage,
) -> None:
    deeds = await write_deeds(storage)

    assert [deed["deed"] for deed in deeds] == [*["key_created"] * 3, "key_revoked"]
    assert deeds[0]["actor"] == "first start"
    assert [deed["project"] for deed in deeds] == [None, "ours", None, "ours"]
    assert deeds[3]["subject"] == deeds[1]["subject"]
    assert len({deed["digest"] for deed in deeds}) == 4
    assert await breaks_after(storage) == []


async def test_a_deed_that_was_changed_is_named(storage: Storage) -> None:
    second = (await write_deeds(storage))[1]["number"]

    breaks = await breaks_after(
        storage, lambda: audit.update().where(audit.c.number == second).values(actor="nobody")
    )

    assert breaks == [f"audit: deed {second}, or what came before it, was changed"]


async def test_a_deed_that_was_taken_out_is_missed_by_the_next(storage: Storage) -> None:
    _, second, third, _ = (deed["number"] for deed in await write_deeds(storage))

    breaks = await breaks_after(storage, lambda: audit.delete().where(audit.c.number == second))

    assert breaks == [f"audit: deed {third}, or what came before it, was changed"]


async def test_a_deed_that_was_put_in_is_named(storage: Storage) -> None:
    await write_deeds(storage)
    made_up = {"at": 1.0, "actor": "me", "project": "", "deed": "x", "subject": "x", "detail": "{}"}

    breaks = await breaks_after(storage, lambda: audit.insert().values(**made_up))

    assert [one.split(" was ")[1] for one in breaks] == ["added without a digest"]


async def test_deeds_from_before_the_chain_are_no_fault(storage: Storage) -> None:
    number = (await write_deeds(storage))[0]["number"]

    breaks = await breaks_after(
        storage,
        lambda: audit.delete().where(audit.c.number != number),
        lambda: audit.update().values(digest=None),
    )

    assert breaks == []
