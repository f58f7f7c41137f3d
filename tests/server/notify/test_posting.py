"""What Alertmanager is sent, and when again."""

import pytest
from tests.server.notify.factories import FIRED_AT, a_case

from runwatch.vocabulary import AlertId
from runwatch_server.alerts.records import Facts
from runwatch_server.notify.cases import layer_group
from runwatch_server.notify.posting import Sent, due_cases, is_due, newest_of_each, posting_of

NOW = FIRED_AT + 10.0


@pytest.mark.parametrize(
    ("is_resolved", "sent", "expected"),
    [
        (False, None, True),
        (False, Sent(False, 41.0), False),
        (False, Sent(False, 40.0), True),
        (True, Sent(False, 99.0), True),
        (True, Sent(True, 99.0), False),
        (True, Sent(True, 40.0), True),
    ],
)
def test_an_alert_is_sent_when_it_changes_and_every_minute(
    is_resolved: bool, sent: Sent | None, expected: bool
) -> None:
    assert is_due(is_resolved, sent, now=100.0) is expected


def test_step_and_value_are_annotations_and_no_labels() -> None:
    alert = posting_of(a_case(), watchdog="prod", url="https://rw", wall=NOW).alert

    assert alert.labels == {
        "alertname": "GradientSpike",
        "rule": "GradientSpike",
        "severity": "critical",
        "watchdog": "prod",
        "project": "pretrain",
        "run_id": "0" * 26,
        "run": "llama",
        "layer_group": "blocks.12",
    }
    assert alert.annotations["step"] == "103"
    assert alert.annotations["value"] == "812.4"
    assert alert.annotations["layers"] == "blocks.12.mlp.down, blocks.12.mlp.up, +3"
    assert alert.annotations["done"] == "nothing was ordered"
    assert alert.annotations["dashboard_url"] == f"https://rw/runs/{'0' * 26}?step=100"
    assert alert.generator_url == f"https://rw/alerts/{'1' * 26}"


def test_a_firing_alert_ends_by_itself_four_minutes_after_the_last_word() -> None:
    alert = posting_of(a_case(), watchdog="w", url="", wall=NOW).alert

    assert alert.starts_at.timestamp() == FIRED_AT - 5.0
    assert alert.ends_at.timestamp() == NOW + 240.0


def test_a_trainer_s_clock_that_is_ahead_makes_no_alert_that_starts_after_its_end() -> None:
    case = a_case(onset_at=FIRED_AT + 3600.0, resolved_at=FIRED_AT + 1.0)
    alert = posting_of(case, watchdog="w", url="", wall=NOW).alert

    assert alert.starts_at.timestamp() == FIRED_AT
    assert alert.ends_at.timestamp() == FIRED_AT + 1.0


def test_an_end_is_not_repeated_while_the_same_alert_fires_again() -> None:
    ended = a_case(resolved_at=FIRED_AT + 1.0)
    again = a_case(id=AlertId("2" * 26), fired_at=FIRED_AT + 2.0)

    assert newest_of_each([ended, again], "w") == [again]
    assert newest_of_each([again, ended], "w") == [again]


def test_what_may_come_back_goes_on_and_yields_to_what_came_back() -> None:
    settling = a_case(resolved_at=FIRED_AT + 1.0, settles_step=700, times=2)
    again = a_case(fired_at=FIRED_AT + 2.0, id=AlertId("2" * 26), times=3)
    posting = posting_of(settling, watchdog="w", url="", wall=NOW)

    assert not posting.is_resolved
    assert posting.alert.ends_at.timestamp() == NOW + 240.0
    assert newest_of_each([again, settling], "w") == [again]


def test_only_what_is_due_is_sent() -> None:
    sent = {"1" * 26: Sent(False, 99.0)}
    other = a_case(id=AlertId("2" * 26), rule="NonFinite")

    assert due_cases([a_case(), other], sent, now=100.0) == [other]


def test_labels_of_a_rule_take_the_form_that_alertmanager_accepts() -> None:
    case = a_case(labels={"run-team": "x", "severity": "none", "2nd": "y"})
    labels = posting_of(case, watchdog="w", url="", wall=NOW).alert.labels

    assert (labels["run_team"], labels["_2nd"], labels["severity"]) == ("x", "y", "critical")


@pytest.mark.parametrize(
    ("layer", "group"),
    [
        ("blocks.12.mlp.down", "blocks.12"),
        ("model.layers.3", "model.layers.3"),
        ("encoder.norm", "encoder"),
        ("head", "head"),
        (None, ""),
    ],
)
def test_a_layer_s_group_is_its_block(layer: str | None, group: str) -> None:
    assert layer_group(layer) == group


def test_a_runbook_of_ours_is_linked_where_people_reach_the_service() -> None:
    case = a_case(facts=Facts(runbook="docs/runbooks/gradient-spike.md"))

    linked = posting_of(case, watchdog="w", url="https://rw", wall=NOW).alert
    named = posting_of(case, watchdog="w", url="", wall=NOW).alert

    assert linked.annotations["runbook_url"] == "https://rw/runbooks/gradient-spike"
    assert named.annotations["runbook_url"] == "docs/runbooks/gradient-spike.md"
