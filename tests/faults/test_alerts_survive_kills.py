"""Killing the service changes nothing in its alerts, nor in what they ordered."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.faults.checker import violations
from tests.faults.history import Alerts, History
from tests.faults.noisy_run import judged, open_run, send_all
from tests.faults.recording import RecordingSender, note_stored
from tests.waiting import LONGEST_S

pytestmark = pytest.mark.heavy


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    with RealService(tmp_path / "service", environment=NOBODY_IS_MISSED) as running:
        yield running


@pytest.mark.parametrize("policy", ["observe", "auto"])
def test_five_kills_in_a_run_change_nothing_in_its_alerts(
    service: RealService, policy: str, tmp_path: Path
) -> None:
    history = History(tmp_path / "history.jsonl")
    key = service.create_key("ingest")
    undisturbed = open_run(service, key, policy)
    send_all(undisturbed)
    expected = judged(service, undisturbed)
    assert len(expected[0]) >= 5
    assert expected[1]

    disturbed = RecordingSender.after(open_run(service, key, policy), history)
    sending = threading.Thread(target=send_all, args=(disturbed,))
    sending.start()
    chance = random.Random(5)
    for _ in range(5):
        time.sleep(chance.uniform(0.1, 0.4))
        service.kill()
        service.start()
    sending.join(LONGEST_S)
    assert not sending.is_alive()

    live = judged(service, disturbed)
    history.note(Alerts(disturbed.run_id, live=repr(live), replayed=repr(expected)))
    history.note_log(service.log, key)
    note_stored(history, service, [disturbed.run_id])
    assert violations(history) == []
