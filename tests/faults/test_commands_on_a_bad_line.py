"""Commands over a line that loses answers, from two people at once, one of them too late: each is
carried out at most once, and comes to an end."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.faults.checker import violations
from tests.faults.cutting_proxy import cutting_proxy
from tests.faults.history import Ended, History, Ordered
from tests.faults.noisy_run import open_run
from tests.faults.recording import note_stored
from tests.faults.replica_sender import ReplicaSender
from tests.waiting import until

pytestmark = pytest.mark.heavy

_ORDER: Final = {"action": {"kind": "checkpoint"}}
_EACH: Final = 4


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    with RealService(tmp_path / "service") as running:
        yield running


def order(service: RealService, run_id: str, history: History, **facts: object) -> str:
    """By a person of their own connection."""
    reply = urllib3.request(
        "POST",
        f"{service.url}/api/v1/runs/{run_id}/commands",
        json={**_ORDER, **facts},
        headers={"Authorization": f"Bearer {service.admin_key}"},
        timeout=60.0,
    )
    assert reply.status < 300, reply.data
    command_id: str = reply.json()["id"]
    history.note(Ordered(command_id))
    return command_id


def has_obeyed(trainer: ReplicaSender, ordered: list[str]) -> bool:
    trainer.obey()
    return set(ordered) <= set(trainer.applied)


def shown(service: RealService, command_id: str) -> Any:
    return service.ask("GET", f"/commands/{command_id}")


def test_each_command_is_applied_at_most_once_and_ends(
    service: RealService, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    key = service.create_key("ingest")
    run_id = open_run(service, key, "observe").run_id
    too_late = order(service, run_id, history, ttl_s=0.01)
    until(lambda: shown(service, too_late)["state"] == "expired")

    def people(_: int) -> list[str]:
        return [order(service, run_id, history) for _ in range(_EACH)]

    chance = random.Random(24)
    with cutting_proxy(service.port, lambda: chance.random() < 0.3) as proxy:
        trainer = ReplicaSender([proxy.url], key, run_id, history)
        trainer.send_until_acknowledged(1, [1.0], 0)
        with ThreadPoolExecutor(2) as threads:
            ordered = [one for ids in threads.map(people, range(2)) for one in ids]
        until(lambda: has_obeyed(trainer, ordered))
        until(lambda: {shown(service, one)["state"] for one in ordered} == {"applied"})

    assert too_late not in trainer.applied
    for command_id in (too_late, *ordered):
        history.note(Ended(command_id, shown(service, command_id)["state"]))
    path = f"{service.url}/api/v1/commands/{ordered[0]}/cancel"
    headers = {"Authorization": f"Bearer {service.admin_key}"}
    refused = urllib3.request("POST", path, headers=headers)
    assert (refused.status, refused.json()["code"]) == (409, "too_late")
    history.note_log(service.log, key)
    note_stored(history, service, [run_id])
    assert violations(history) == []
