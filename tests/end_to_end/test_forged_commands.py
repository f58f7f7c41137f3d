"""Who can write to the database, and no more, orders nothing of a real trainer."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import Trainer, watched_by
from tests.waiting import until

from runwatch.ulids import ulid

pytestmark = pytest.mark.heavy

_COPIED = (
    *("run_id", "attempt", "state", "reason", "requested_by", "automatic", "created_at"),
    *("expires_at", "detail", "signature"),
)


def forge(service: RealService, number: int, *, signature: str | None) -> str:
    """A row that orders a stop, like the one of the command that there is; returns its id."""
    forged_id = ulid(number, bytes(10))
    columns = ", ".join(_COPIED)
    with sqlite3.connect(service.database) as connection:
        connection.execute(
            f"INSERT INTO commands (id, kind, action, {columns})"
            f" SELECT ?, 'stop', '{{\"kind\": \"stop\"}}', {columns} FROM commands"
            " ORDER BY created_at LIMIT 1",
            (forged_id,),
        )
        connection.execute(
            "UPDATE commands SET state = 'queued', signature = coalesce(?, signature),"
            " expires_at = expires_at + 3600 WHERE id = ?",
            (signature, forged_id),
        )
    connection.close()
    return forged_id


def ended(service: RealService, command_id: str) -> dict[str, Any]:
    """The command once it has come to an end."""
    until(lambda: service.ask("GET", f"/commands/{command_id}")["ended_at"] is not None)
    found: dict[str, Any] = service.ask("GET", f"/commands/{command_id}")
    return found


def test_a_real_trainer_refuses_a_row_that_nobody_ordered(
    tmp_path: Path, service: RealService
) -> None:
    service.start()
    environment = watched_by(service, number=1)
    run = f"/runs/{environment['RUNWATCH_RUN_ID']}"
    commands = f"{run}/commands"
    with Trainer(tmp_path / "job", environment=environment, steps=1_000_000) as job:
        until(lambda: service.ask("GET", run)["current_attempt"])
        scale = {"action": {"kind": "lower_lr", "scale": 0.5}}
        true_order = service.ask("POST", commands, scale)
        assert ended(service, true_order["id"])["state"] == "applied"

        service.kill()
        bare = forge(service, 1, signature="")
        stolen = forge(service, 2, signature=None)
        service.start()

        for command_id, found in ((bare, "missing"), (stolen, "wrong")):
            refused = ended(service, command_id)
            assert (refused["state"], refused["detail"]["signature"]) == ("rejected", found)
        deeds = service.ask("GET", "/audit")["deeds"]
        assert {deed["subject"] for deed in deeds if deed["deed"] == "command_not_authentic"} == {
            bare,
            stolen,
        }

        stop = service.ask("POST", commands, {"action": {"kind": "stop"}})
        assert ended(service, stop["id"])["state"] == "applied"
        job.finish()
