"""Somebody with a key of the same project tries all that a trainer may do, beside a real trainer
whose run acts by itself, and changes not a bit of its training."""

import math
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import urllib3
from tests.end_to_end import digesting_loop
from tests.end_to_end.real_service import BY_THE_CLOCK, RealService
from tests.end_to_end.trainer import ENDLESS, Trainer, watched_by
from tests.server.harness import LAYOUT, frame, new_id
from tests.waiting import until

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.messages import ATTEMPT_TOKEN_HEADER

pytestmark = pytest.mark.heavy

DETAIL: Final = {"action": {"kind": "detail", "steps": 2}}
BEAT: Final = {"attempt": 1, "rank": 0, "last_step": 10**6, "step_age_s": 0.0, "phase": "train"}


class Attacker:
    """Has a key with the scope `ingest`, and the id of another's run."""

    def __init__(self, service: RealService, run_id: str) -> None:
        self._url = f"{service.url}/api/v1"
        self._key = service.create_key("ingest")
        self._run = f"/runs/{run_id}"

    def open_attempt(self) -> None:
        opening = {"token": new_id(), "started_at": 0.0}
        assert self._send("POST", f"{self._run}/attempts", opening) == 200

    def try_all(self, command_id: str) -> set[int]:
        """The statuses of all answers to what is forged for attempt 1."""
        nans = [frame(seq, [math.nan], first_step=60) for seq in (1, *range(5, 400))]
        frames = [self._send("POST", f"{self._run}/frames", encode_frame(nan)) for nan in nans]
        receipt = {"command_id": command_id, "attempt": 1, "rank": 0, "state": "applied", "step": 1}
        return {
            *frames,
            self._send("POST", f"{self._run}/heartbeat", BEAT),
            self._send("POST", f"{self._run}/attempts/1/close", {"status": "finished"}),
            self._send("POST", f"/commands/{command_id}/receipt", receipt),
            self._send("GET", f"{self._run}/commands/next?attempt=1"),
            self._send("PUT", f"{self._run}/layouts/{LAYOUT.hash}", LAYOUT.to_document()),
        }

    def _send(self, method: str, path: str, message: object = None) -> int:
        is_frame = isinstance(message, bytes)
        headers = {
            "Authorization": f"Bearer {self._key}",
            "Content-Type": CONTENT_TYPE if is_frame else "application/json",
            ATTEMPT_TOKEN_HEADER: new_id(),
        }
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        return urllib3.request(method, self._url + path, body=body, headers=headers).status


def test_a_real_trainer_trains_on_bit_for_bit(tmp_path: Path, service: RealService) -> None:
    service.start()
    environment = watched_by(service, number=1, policy="auto")
    run = f"/runs/{environment['RUNWATCH_RUN_ID']}"
    attacker = Attacker(service, environment["RUNWATCH_RUN_ID"])
    with digesting(tmp_path / "job", environment) as job:
        job.wait_for_steps(60)
        ordered = service.ask("POST", f"{run}/commands", DETAIL)["id"]
        assert attacker.try_all(ordered) == {403}

        until(lambda: service.ask("GET", f"/commands/{ordered}")["state"] == "applied")
        seen = len(job.trained())
        until(lambda: service.ask("GET", run)["last_step"] > seen)
        assert service.ask("GET", run)["state"] == "training"
        assert [one["id"] for one in service.ask("GET", f"{run}/commands")["commands"]] == [ordered]
        assert rules(service, run) == []

        attacker.open_attempt()
        until(lambda: rules(service, run) == ["AttemptReplaced"])
        job.wait_for_steps(len(job.trained()) + 30)
        trained = job.trained()

    with digesting(tmp_path / "unwatched", {"RUNWATCH_DISABLED": "1"}) as unwatched:
        unwatched.wait_for_steps(len(trained))
    assert trained == unwatched.trained()[: len(trained)]
    found, wanted = (
        weights_after_steps(tmp_path / name, len(trained)) for name in ("job", "unwatched")
    )
    assert found == wanted


def digesting(folder: Path, environment: dict[str, str]) -> Trainer:
    program = Path(digesting_loop.__file__)
    return Trainer(folder, environment=environment, steps=ENDLESS, program=program)


def weights_after_steps(folder: Path, num_steps: int) -> list[str]:
    """A digest of all weights after each step."""
    digests = (folder / digesting_loop.DIGESTS).read_text().splitlines()[:num_steps]
    assert len(set(digests)) == num_steps
    return digests


def rules(service: RealService, run: str) -> list[Any]:
    """Whose alerts the run has had, but for those of its speed."""
    found = service.ask("GET", f"/alerts?run_id={run.rpartition('/')[2]}")["alerts"]
    return [alert["rule"] for alert in found if alert["rule"] not in BY_THE_CLOCK]
