"""Each change of an alert or a command is told once."""

import msgspec

from runwatch_server.demo.client import Alert, Command
from runwatch_server.demo.events import DemoEvent, RunEvents

FIRING = Alert(
    id="1",
    rule="GradientExplosion",
    severity="critical",
    state="firing",
    onset_step=500,
    firing_step=500,
    summary="gradient norm 12 at step 500",
)


def test_an_alert_is_told_once_for_each_state() -> None:
    events = RunEvents()
    assert events.of_alerts([FIRING]) == [
        DemoEvent(
            "alert",
            "GradientExplosion (critical) fires, since step 500: gradient norm 12 at step 500",
        )
    ]
    assert events.of_alerts([FIRING]) == []


def test_a_command_says_what_it_asks_for_and_how_far_it_came() -> None:
    action = {"kind": "rollback", "before_step": 500}
    events = RunEvents()
    queued = Command(id="2", action=action, state="queued")
    applied = Command(id="2", action=action, state="applied", ended_step=503)
    assert [told.text for told in events.of_commands([queued])] == [
        "rollback to before step 500 is on its way"
    ]
    assert [told.text for told in events.of_commands([applied])] == [
        "rollback to before step 500 was carried out before step 503"
    ]


def test_an_alert_that_is_pending_is_not_told() -> None:
    assert RunEvents().of_alerts([msgspec.structs.replace(FIRING, state="pending")]) == []
