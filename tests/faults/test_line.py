"""Answers that get lost, frames out of order and twice: stored once, judged as if nothing were."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import urllib3
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.checker import violations
from tests.faults.cutting_proxy import cutting_proxy
from tests.faults.history import Acked, Alerts, History, Sent
from tests.faults.noisy_run import NUM_FRAMES, STEPS_A_FRAME, judged, losses_of, open_run, send_all
from tests.faults.recording import RecordingSender, note_stored
from tests.faults.sender import Sender
from tests.proofs import proof

pytestmark = pytest.mark.heavy

_TOGETHER: Final = 20
"""Frames that may overtake each other: few enough to come within the time that a gap is waited."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder = tmp_path_factory.mktemp("line")
    with RealService(folder, environment=NOBODY_IS_MISSED) as running:
        yield running


@pytest.fixture(scope="module")
def key(service: RealService) -> str:
    return service.create_key("ingest")


@pytest.fixture(scope="module")
def undisturbed(service: RealService, key: str) -> list[Any]:
    """What comes of the run when every frame comes once and in its turn."""
    sender = open_run(service, key, "observe")
    send_all(sender)
    story = judged(service, sender)
    assert len(story[0]) >= 5
    return story


def told(story: list[Any]) -> str:
    return repr(story)


def send(sender: Sender, seq: int) -> None:
    sender.send_until_acknowledged(seq, losses_of(seq), (seq - 1) * STEPS_A_FRAME)


def test_answers_that_are_lost_after_the_commit_store_and_judge_nothing_twice(
    service: RealService, key: str, undisturbed: list[Any], tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    opened = open_run(service, key, "observe")
    chance = random.Random(4)
    with cutting_proxy(service.port, lambda: chance.random() < 0.2) as proxy:
        sender = RecordingSender.after(opened, history, url=proxy.url)
        for seq in range(1, NUM_FRAMES + 1):
            send(sender, seq)
    direct = RecordingSender.after(opened, history)
    story = judged(service, direct)
    history.note(Alerts(opened.run_id, live=told(story), replayed=told(undisturbed)))
    note_stored(history, service, [opened.run_id])

    kinds = [type(fact) for fact in history.facts()]
    assert kinds.count(Sent) > kinds.count(Acked) + NUM_FRAMES // 10
    assert violations(history) == []


def test_frames_that_overtake_each_other_and_come_again_are_judged_in_order_once(
    service: RealService, key: str, undisturbed: list[Any], tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    sender = RecordingSender.after(open_run(service, key, "observe"), history)
    chance = random.Random(5)
    for start in range(1, NUM_FRAMES + 1, _TOGETHER):
        block = list(range(start, min(start + _TOGETHER, NUM_FRAMES + 1)))
        for seq in chance.sample(block, len(block)) + chance.sample(block, len(block) // 5):
            send(sender, seq)
    story = judged(service, sender)
    history.note(Alerts(sender.run_id, live=told(story), replayed=told(undisturbed)))
    note_stored(history, service, [sender.run_id])

    assert violations(history) == []


def test_another_frame_under_a_number_that_is_held_takes_nothing_away(
    service: RealService, key: str, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    sender = RecordingSender.after(open_run(service, key, "observe"), history)
    send(sender, 1)
    reply = urllib3.request(
        "POST",
        f"{service.url}/api/v1/runs/{sender.run_id}/frames",
        json={"attempt": 1, "seq": 1, "first_step": 0, "metrics": {"loss": [7.0]}},
        headers={"Authorization": f"Bearer {key}", **proof(sender.run_id)},
    )
    note_stored(history, service, [sender.run_id])

    assert (reply.status, reply.json()["code"]) == (422, "conflict")
    assert violations(history) == []
