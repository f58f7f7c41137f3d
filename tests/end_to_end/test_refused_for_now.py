"""A real hook whose frames the service refuses for now, since they take too much: it comes again
when it may, and nothing is lost."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
import urllib3
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.end_to_end.test_spool_and_sync import OTHER_LAYOUT, stored_losses, trained
from tests.faults.sender import NotNowError, Sender
from tests.hooks.uplink.factories import LAYOUT, row, started
from tests.waiting import until

from runwatch.codec import encode_frame
from runwatch.frames import Event, Frame
from runwatch.vocabulary import RunId

pytestmark = pytest.mark.slow

STEPS = 200


@contextmanager
def service_with(folder: Path, **settings: str) -> Generator[RealService]:
    environment = NOBODY_IS_MISSED | {f"RUNWATCH_{name}": text for name, text in settings.items()}
    with RealService(folder / "service", environment=environment) as running:
        yield running


def num_refused(service: RealService, code: str) -> float:
    """How many requests were refused with this code."""
    headers = {"Authorization": f"Bearer {service.admin_key}"}
    text = urllib3.request("GET", f"{service.url}/metrics", headers=headers).data.decode()
    name = f'runwatch_problems_total{{code="{code}"}} '
    counts = [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]
    return float(counts[0]) if counts else 0.0


def has_arrived(service: RealService, run_id: RunId, num_steps: int) -> bool:
    runs = service.ask("GET", "/runs")["runs"]
    return any(one["id"] == run_id and one["last_step"] == num_steps - 1 for one in runs)


def test_a_key_that_unpacks_too_much_is_slowed_and_all_arrives(tmp_path: Path) -> None:
    with service_with(tmp_path, UNPACKED_MIB_PER_S="0.00002") as service:  # a frame every 2 s
        token = service.create_key("ingest")
        transport = started(tmp_path / "spool", service.url, token=token)
        for step in range(6):  # layouts that change make a frame of each step
            layout = OTHER_LAYOUT if step % 2 else LAYOUT
            transport.put_row(row(step, metrics={"loss": float(step)}, layout=layout))

        until(lambda: has_arrived(service, transport.run_id, 6))
        transport.close("finished")
        stored = stored_losses(service, transport.run_id)
        assert stored == {step: float(step) for step in range(6)}
        assert num_refused(service, "rate_limited") > 0


def fill(service: RealService, token: str) -> str:
    """Store more than a MiB in the project; returns the run that holds it."""
    sender = Sender.open(service.url, token)
    text: dict[str, object] = {"text": ["y" * 1000] * 950}
    frame = Frame(
        attempt=1,
        rank=0,
        seq=1,
        segment=0,
        first_step=0,
        times=np.zeros(1),
        metric_names=("loss",),
        metrics=np.ones((1, 1)),
        events=(msgspec.convert({"step": 0, "kind": "note", "at": 1.7e9, "detail": text}, Event),),
    )
    sender.send_body(encode_frame(frame))
    with pytest.raises(NotNowError):
        sender.send(2, [1.0], first_step=1)
    sender.json("POST", f"/runs/{sender.run_id}/attempts/1/close", {"status": "finished"})
    return sender.run_id


def test_a_project_at_its_quota_takes_again_once_a_run_was_removed(tmp_path: Path) -> None:
    with service_with(tmp_path, PROJECT_QUOTA_MIB="1") as service:
        token = service.create_key("ingest")
        large = fill(service, token)
        watch, losses = trained(tmp_path / "spool", service.url, token, STEPS)
        before = num_refused(service, "project_full")
        until(lambda: num_refused(service, "project_full") > before)

        service.ask("DELETE", f"/runs/{large}")

        until(lambda: has_arrived(service, watch.run_id, STEPS))
        watch.finish()
        assert list(stored_losses(service, watch.run_id)) == list(range(len(losses)))
