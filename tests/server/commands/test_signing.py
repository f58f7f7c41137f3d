"""Commands are signed when they are ordered, and nothing that the database alone says is."""

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.proofs import token_of
from tests.server.harness import Api, Storage, both_engines, new_id, serve

from runwatch.commands import Command
from runwatch.messages import SIGNATURES, UNDERSTANDS_HEADER, AttemptOpened
from runwatch.signatures import is_signed
from runwatch.vocabulary import RunId
from runwatch_server.commands.tables import commands
from runwatch_server.runs.tables import attempts

pytestmark = [pytest.mark.anyio, both_engines]

OLD = "an old key that is long enough, by far"
NEW = "a new key that is long enough, by far.."
CHECKPOINT = {"action": {"kind": "checkpoint"}}


def key_file(storage: Storage, *keys: str) -> dict[str, Any]:
    """As a setting of the service."""
    path = storage.data_dir / "keys.txt"
    path.write_text("\n".join(keys))
    return {"secret_file": path}


async def open_signed(api: Api, run_id: RunId, token: str) -> AttemptOpened:
    reply = await api.call(
        "POST",
        f"/runs/{run_id}/attempts",
        json={"token": token, "started_at": 1.7e9},
        headers={UNDERSTANDS_HEADER: SIGNATURES},
    )
    return msgspec.json.decode(reply.content, type=AttemptOpened)


async def new_signed_run(api: Api) -> tuple[RunId, AttemptOpened]:
    run_id = new_id()
    await api.json("POST", "/runs", json={"run_id": run_id, "name": "test"})
    return run_id, await open_signed(api, run_id, token_of(run_id))


async def told(api: Api, run_id: RunId) -> list[Command]:
    reply = await api.call("GET", f"/runs/{run_id}/commands/next?attempt=1")
    return msgspec.json.decode(reply.content, type=dict[str, list[Command]])["commands"]


async def tamper(api: Api, statement: sa.Update | sa.Insert) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(statement)

    await api.services.database.write(work)


async def test_a_trainer_that_understands_gets_a_secret_and_signed_commands(
    storage: Storage,
) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, opened = await new_signed_run(api)
        await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        (command,) = await told(api, run_id)

        assert is_signed(opened.secret, run_id, command)


async def test_one_that_does_not_gets_neither(storage: Storage) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id = await api.new_run()
        await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        reply = await api.json("GET", f"/runs/{run_id}/commands/next?attempt=1")

        assert "signature" not in reply["commands"][0]


async def test_an_old_trainer_is_sent_no_field_that_it_would_refuse(storage: Storage) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id = new_id()
        await api.json("POST", "/runs", json={"run_id": run_id, "name": "test"})
        body = {"token": new_id(), "started_at": 1.7e9}

        assert await api.json("POST", f"/runs/{run_id}/attempts", json=body) == {"attempt": 1}


async def test_each_run_and_each_attempt_has_a_secret_of_its_own(storage: Storage) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, first = await new_signed_run(api)
        second = await open_signed(api, run_id, new_id())
        _, other = await new_signed_run(api)

        assert len({first.secret, second.secret, other.secret}) == 3


async def test_a_row_that_somebody_wrote_into_the_database_bears_no_signature(
    storage: Storage,
) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, opened = await new_signed_run(api)
        await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        await tamper(api, sa.update(commands).values(action='{"kind": "stop"}'))
        await api.services.delivery.refresh(run_id)
        (command,) = await told(api, run_id)

        assert command.action.kind == "stop"
        assert not is_signed(opened.secret, run_id, command)


async def test_a_proposal_that_was_changed_in_the_database_cannot_be_approved(
    storage: Storage,
) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, _ = await new_signed_run(api)
        order = await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        await tamper(api, sa.update(commands).values(state="proposed"))
        refused = await api.call("POST", f"/commands/{order['id']}/approve")

        assert (refused.status_code, refused.json()["code"]) == (409, "wrong_signature")


async def test_an_attempt_keeps_its_key_when_a_newer_one_signs(storage: Storage) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, opened = await new_signed_run(api)
        admin_key = api.admin_key
    async with serve(storage, admin_key=admin_key, **key_file(storage, NEW, OLD)) as api:
        await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        (command,) = await told(api, run_id)
        _, newer = await new_signed_run(api)
        readiness = (await api.http.get("/readyz")).json()

    assert is_signed(opened.secret, run_id, command)
    assert not is_signed(newer.secret, run_id, command)
    assert readiness["signing"] == "on"


async def test_without_the_key_of_an_attempt_it_is_said_and_nothing_is_ordered(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is with a replica that was given another file than the others."""
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, opened = await new_signed_run(api)
        token = (await api.json("GET", f"/runs/{run_id}/attempts"))["attempts"]
        admin_key = api.admin_key
    async with serve(storage, admin_key=admin_key, **key_file(storage, NEW)) as api:
        refused = await api.call("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        readiness = await api.http.get("/readyz")

    assert (refused.status_code, refused.json()["code"]) == (409, "no_signing_key")
    assert readiness.json()["signing"].startswith("1 runs under keys that are not here")
    assert "1 runs cannot be commanded" in caplog.text
    assert "secret" not in str(token)
    assert opened.secret


async def test_the_same_attempt_is_given_the_same_secret_by_any_replica(storage: Storage) -> None:
    token = new_id()
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, _ = await new_signed_run(api)
        first = await open_signed(api, run_id, token)
        admin_key = api.admin_key
    async with serve(storage, admin_key=admin_key, **key_file(storage, NEW, OLD)) as api:
        again = await open_signed(api, run_id, token)

    assert again == first


async def test_the_audit_says_that_a_command_was_signed_and_that_a_trainer_refused_one(
    storage: Storage,
) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        run_id, _ = await new_signed_run(api)
        order = await api.json("POST", f"/runs/{run_id}/commands", json=CHECKPOINT)
        receipt = {
            "command_id": order["id"],
            "attempt": 1,
            "rank": 0,
            "state": "rejected",
            "step": 7,
            "detail": {"signature": "missing", "error": "signature: found none"},
        }
        await api.json("POST", f"/commands/{order['id']}/receipt", json=receipt)
        deeds = (await api.json("GET", "/audit"))["deeds"]

    told = {deed["deed"]: deed["detail"] for deed in deeds if deed["subject"] == order["id"]}
    assert set(told) == {"command_queued", "command_not_authentic"}
    assert told["command_queued"]["is_signed"]


async def test_the_secret_is_not_in_the_database(storage: Storage) -> None:
    async with serve(storage, **key_file(storage, OLD)) as api:
        _, opened = await new_signed_run(api)
        async with api.services.database.read() as connection:
            rows = str((await connection.execute(sa.select(attempts))).all())

    assert opened.secret.hex() not in rows
    assert OLD not in rows
