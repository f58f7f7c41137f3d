"""Somebody who has a key of the same project, and the id of a run, cannot speak for its trainer.

The trainer and the attacker each have a key with the scope ingest; only the trainer has the token
that it opened its attempt with.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from tests.proofs import proof, token_of
from tests.server.harness import LAYOUT, Api, HandClock, both_engines, frame, new_id

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.messages import ATTEMPT_TOKEN_HEADER
from runwatch.vocabulary import RunId
from runwatch_server.runs.tables import attempts

pytestmark = pytest.mark.anyio

STOP: Final = {"action": {"kind": "stop"}, "reason": "GPU on fire"}
BEAT: Final = {"attempt": 1, "rank": 0, "last_step": 99, "step_age_s": 0.0, "phase": "train"}


@dataclass(frozen=True, slots=True)
class Stage:
    """A run with a living attempt, to which a person has ordered a stop."""

    api: Api
    run_id: RunId
    trainer: str
    attacker: str
    command_id: str

    async def forge(
        self, method: str, path: str, proof: dict[str, str], **arguments: Any
    ) -> tuple[int, str]:
        """Status and code of the answer to a request with the attacker's key."""
        headers = proof | arguments.pop("headers", {})
        reply = await self.api.call(method, path, key=self.attacker, headers=headers, **arguments)
        return reply.status_code, reply.json().get("code", "")

    async def seen(self) -> dict[str, Any]:
        """All that people see of the run."""
        run = f"/runs/{self.run_id}"
        paths = (f"{run}/attempts", f"{run}/timeline", f"/commands/{self.command_id}")
        found = {path: await self.api.json("GET", path) for path in (run, *paths)}
        del found[run]["state"]  # by the clock, it goes on by itself
        return found | {"loss": await self.api.series(self.run_id, metric="loss")}


@pytest.fixture
async def stage(api: Api) -> Stage:
    trainer, attacker = [await api.new_key("ingest", project="team") for _ in range(2)]
    run_id = await api.new_run(project="team", allow=["stop"])
    await api.json("PATCH", f"/runs/{run_id}", json={"policy": "auto"})
    await api.post(run_id, frame(1, [1.0] * 5))
    await api.until_judged(run_id)
    command = await api.json("POST", f"/runs/{run_id}/commands", json=STOP)
    return Stage(api, run_id, trainer, attacker, command["id"])


def forgeries(stage: Stage) -> dict[str, tuple[str, str, dict[str, Any]]]:
    run = f"/runs/{stage.run_id}"
    nan = encode_frame(frame(2, [float("nan")], first_step=5))
    receipt = {"command_id": stage.command_id, "attempt": 1, "rank": 0, "step": 5}
    in_json = {"attempt": 1, "seq": 2, "first_step": 5, "metrics": {"loss": ["NaN"]}}
    binary = {"content": nan, "headers": {"Content-Type": CONTENT_TYPE}}
    return {
        "a frame": ("POST", f"{run}/frames", binary),
        "a frame in JSON": ("POST", f"{run}/frames", {"json": in_json}),
        "a late frame": ("POST", f"{run}/frames?late=true", binary),
        "a heartbeat": ("POST", f"{run}/heartbeat", {"json": BEAT}),
        "a close": ("POST", f"{run}/attempts/1/close", {"json": {"status": "finished"}}),
        "a receipt": (
            "POST",
            f"/commands/{stage.command_id}/receipt",
            {"json": receipt | {"state": "applied"}},
        ),
        "reading commands": ("GET", f"{run}/commands/next?attempt=1", {}),
        "a layout": ("PUT", f"{run}/layouts/{LAYOUT.hash}", {"json": LAYOUT.to_document()}),
    }


@both_engines
async def test_nothing_is_taken_without_the_attempts_token(stage: Stage) -> None:
    before = await stage.seen()
    for token in ("", str(new_id())):
        for what, (method, path, arguments) in forgeries(stage).items():
            found = await stage.forge(method, path, {ATTEMPT_TOKEN_HEADER: token}, **arguments)
            assert found == (403, "wrong_attempt_token"), what

    assert await stage.seen() == before


async def test_the_token_of_an_attempt_of_ones_own_is_none_for_another(stage: Stage) -> None:
    """As an attempt that is sent afterwards, which replaces nobody, anybody may open one."""
    opening = {"token": token_of(stage.run_id, 2), "started_at": 0.0, "live": False}
    path = f"/runs/{stage.run_id}/attempts"
    await stage.api.json("POST", path, json=opening, key=stage.attacker)
    (deed, *_) = (await stage.api.json("GET", "/audit"))["deeds"]
    assert (deed["deed"], deed["detail"]) == ("attempt_added", {"attempt": 2, "beside": 1})
    before = await stage.seen()
    for what, (method, path, arguments) in forgeries(stage).items():
        if what != "a layout":
            found = await stage.forge(method, path, proof(stage.run_id, 2), **arguments)
            assert found == (403, "other_attempt"), what

    assert await stage.seen() == before


async def test_the_trainer_itself_is_heard(stage: Stage) -> None:
    sent = forgeries(stage)
    del sent["a frame in JSON"]  # the same number as the other
    for what in sorted(sent, key="a close".__eq__):
        method, path, arguments = sent[what]
        headers = proof(stage.run_id) | arguments.get("headers", {})
        whole = arguments | {"headers": headers}
        await stage.api.json(method, path, key=stage.trainer, **whole)


async def test_receipts_and_closes_name_their_key(stage: Stage) -> None:
    about = proof(stage.run_id)
    receipt = {"command_id": stage.command_id, "attempt": 1, "rank": 0, "step": 5}
    answer = receipt | {"state": "applied"}
    path = f"/commands/{stage.command_id}/receipt"
    api, key = stage.api, stage.trainer
    await api.json("POST", path, json=answer, key=key, headers=about)
    closing = {"status": "stopped"}
    path = f"/runs/{stage.run_id}/attempts/1/close"
    await api.json("POST", path, json=closing, key=key, headers=about)

    deeds = (await api.json("GET", "/audit", params={"run_id": stage.run_id}))["deeds"]
    actor = f"key:{key.split('_')[1]}"
    assert [one["deed"] for one in deeds if one["actor"] == actor] == [
        "attempt_closed",
        "command_applied",
    ]
    events = (await api.json("GET", f"/commands/{stage.command_id}"))["events"]
    assert [one["detail"]["by"] for one in events if one["kind"] == "receipt"] == [actor]


async def test_a_key_that_may_stop_the_trainer_may_close_its_attempt(stage: Stage) -> None:
    on_call = await stage.api.new_key("ingest", "control", project="team")

    path = f"/runs/{stage.run_id}/attempts/1/close"
    wrong = {ATTEMPT_TOKEN_HEADER: ""}
    await stage.api.json("POST", path, json={"status": "stopped"}, key=on_call, headers=wrong)

    assert (await stage.api.json("GET", f"/runs/{stage.run_id}"))["state"] == "stopped"


@both_engines
async def test_who_takes_a_living_trainers_place_is_named_and_an_alert_says_so(
    stage: Stage,
) -> None:
    api, run = stage.api, f"/runs/{stage.run_id}"
    opening = {"token": "a" * 43, "started_at": 0.0}
    await api.json("POST", f"{run}/attempts", json=opening, key=stage.attacker)
    refused = await api.post(stage.run_id, frame(2, [1.0], first_step=5))
    await api.services.ticker.tick_slowly()

    assert (refused.status_code, refused.json()["code"]) == (409, "stale_attempt")
    (alert,) = await replaced(api, stage.run_id)
    assert (alert["state"], alert["severity"]) == ("firing", "critical")
    assert "attempt 1 goes on, though attempt 2 has taken its place" in alert["summary"]
    params = {"kind": "attempt_replaced"}
    events = (await api.json("GET", f"{run}/timeline", params=params))["events"]
    assert [(one["attempt"], one["source"]) for one in events] == [(1, "service")]
    (deed, *_) = (await api.json("GET", "/audit", params={"run_id": stage.run_id}))["deeds"]
    assert (deed["deed"], deed["actor"]) == (
        "attempt_replaced",
        f"key:{stage.attacker.split('_')[1]}",
    )
    assert deed["detail"] == {"attempt": 2, "beside": 1}


async def test_the_alert_is_raised_once_and_stays_when_the_intruder_ends_the_run(
    stage: Stage,
) -> None:
    api, run = stage.api, f"/runs/{stage.run_id}"
    opening = {"token": token_of(stage.run_id, 2), "started_at": 0.0}
    await api.json("POST", f"{run}/attempts", json=opening, key=stage.attacker)
    for _ in range(2):
        await api.call("POST", f"{run}/heartbeat", json=BEAT)
        await api.services.ticker.tick_slowly()
    about = proof(stage.run_id, 2)
    closing = {"status": "finished"}
    await api.json(
        "POST", f"{run}/attempts/2/close", json=closing, key=stage.attacker, headers=about
    )
    await api.services.ticker.tick_slowly()

    assert [one["state"] for one in await replaced(api, stage.run_id)] == ["firing"]


async def test_the_alert_is_over_after_a_day(stage: Stage, hand_clock: HandClock) -> None:
    opening = {"token": token_of(stage.run_id, 2), "started_at": 0.0}
    await stage.api.json("POST", f"/runs/{stage.run_id}/attempts", json=opening)
    await stage.api.post(stage.run_id, frame(2, [1.0], first_step=5))
    await stage.api.services.ticker.tick_slowly()
    hand_clock.now += 86_401
    await stage.api.services.ticker.tick_slowly()

    assert [one["state"] for one in await replaced(stage.api, stage.run_id)] == ["resolved"]


async def test_a_trainer_that_was_killed_and_started_again_raises_no_alert(stage: Stage) -> None:
    await stage.api.new_attempt(stage.run_id)
    await stage.api.post(stage.run_id, frame(1, [1.0], first_step=5, attempt=2))
    left = await stage.api.post(stage.run_id, frame(2, [1.0], first_step=5), late=True)
    await stage.api.services.ticker.tick_slowly()

    assert left.is_success
    assert await replaced(stage.api, stage.run_id) == []


async def replaced(api: Api, run_id: RunId) -> list[Any]:
    params = {"run_id": run_id, "rule": "AttemptReplaced"}
    found: list[Any] = (await api.json("GET", "/alerts", params=params))["alerts"]
    return found


async def test_the_token_is_in_no_table(api: Api, tmp_path: Path) -> None:
    run_id = await api.new_run()
    async with api.services.database.read() as connection:
        rows = str((await connection.execute(sa.select(attempts))).all())

    assert token_of(run_id) not in rows


async def test_a_run_that_is_removed_and_comes_back_has_attempts_of_its_own(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))
    await api.json("POST", f"/runs/{run_id}/attempts/1/close", json={"status": "finished"})
    assert (await api.call("DELETE", f"/runs/{run_id}")).is_success
    await api.json("POST", "/runs", json={"run_id": run_id, "name": "again"})
    opening = {"token": "b" * 43, "started_at": 0.0}
    await api.json("POST", f"/runs/{run_id}/attempts", json=opening)

    old = await api.post(run_id, frame(1, [1.0]))
    body, kind = encode_frame(frame(1, [1.0])), {"Content-Type": CONTENT_TYPE}
    new = await api.call(
        "POST",
        f"/runs/{run_id}/frames",
        content=body,
        headers=kind | {ATTEMPT_TOKEN_HEADER: "b" * 43},
    )

    assert (old.status_code, new.status_code) == (403, 200)
