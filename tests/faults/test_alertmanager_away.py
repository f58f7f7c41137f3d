"""Alertmanager killed, stopped, or refusing: whoever listens behind it hears of each alert, and of
its end."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.checker import violations
from tests.faults.history import Fired, History, Notified
from tests.server.harness import Api
from tests.server.notify.alertmanager_process import PROGRAM, AlertmanagerProcess
from tests.server.notify.sink import Sink, running_sink
from tests.server.notify.with_alertmanager import (
    ShiftedClock,
    alertmanager,
    break_run,
    heal_run,
    shifted_clock,
    told,
    told_of,
)
from tests.waiting import until_so

__all__ = ["alertmanager", "shifted_clock", "told"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"no {PROGRAM} on this machine"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def sink() -> Iterator[Sink]:
    """The webhook behind Alertmanager."""
    with running_sink() as running:
        yield running


async def judged(folder: Path, api: Api, sink: Sink) -> list[str]:
    """All that fired, by the service's own list, against all that the webhook was told."""
    history = History(folder / "history.jsonl")
    listed = await api.json("GET", "/alerts", params={"limit": 500})
    fired = [alert for alert in listed["alerts"] if alert["firing_step"] is not None]
    assert fired
    for alert in fired:
        if alert["inhibited_by"] is None and not alert["shadow"]:
            history.note(Fired(key_of(alert["run_id"], alert["rule"]), over=False))
            if alert["state"] == "resolved":
                history.note(Fired(key_of(alert["run_id"], alert["rule"]), over=True))
    for body in sink.bodies:
        for alert in body["alerts"]:
            labels = alert["labels"]
            key = key_of(labels.get("run_id", ""), labels["alertname"])
            history.note(Notified(key, over=alert["status"] == "resolved"))
    return violations(history)


def key_of(run_id: str, rule: str) -> str:
    return f"{rule} of {run_id}"


def runs_told_of(sink: Sink, status: str, *, since: int = 0) -> set[Any]:
    """By the posts from number `since` on."""
    later = Sink(posts=sink.posts[since:])
    return {alert["labels"]["run_id"] for alert in told_of(later, "NonFinite", status)}


async def test_an_alertmanager_killed_between_two_alerts_comes_back_knowing_nothing(
    told: Api,
    sink: Sink,
    alertmanager: AlertmanagerProcess,
    shifted_clock: ShiftedClock,
    tmp_path: Path,
) -> None:
    run_id = await break_run(told)
    await until_so(lambda: bool(told_of(sink, "NonFinite", "firing")))

    alertmanager.kill()
    shifted_clock.now += 61  # a re-send is due, and finds nobody
    second = await break_run(told)
    num_before = len(sink.posts)
    alertmanager.start()
    # Of the end of what it has not heard of again it would tell nobody.
    await until_so(lambda: runs_told_of(sink, "firing", since=num_before) == {run_id, second})
    await heal_run(told, run_id)
    await heal_run(told, second)
    await until_so(lambda: runs_told_of(sink, "resolved") == {run_id, second})

    assert await judged(tmp_path, told, sink) == []


async def test_an_alert_that_ends_while_alertmanager_is_stopped_is_told_when_it_is_back(
    told: Api,
    sink: Sink,
    alertmanager: AlertmanagerProcess,
    shifted_clock: ShiftedClock,
    tmp_path: Path,
) -> None:
    run_id = await break_run(told)
    await until_so(lambda: bool(told_of(sink, "NonFinite", "firing")))

    alertmanager.stop()
    await heal_run(told, run_id)
    shifted_clock.now += 61
    alertmanager.start()
    await until_so(lambda: runs_told_of(sink, "resolved") == {run_id})

    assert await judged(tmp_path, told, sink) == []
