"""Which deliveries leave, which wait, and which nobody needs any more."""

from dataclasses import replace
from typing import Any

import pytest
from tests.server.notify.factories import FIRED_AT, a_case, a_delivery

from runwatch.alerts import AlertState
from runwatch.commands import CommandState, Rollback
from runwatch.vocabulary import AlertId, CommandId, Severity
from runwatch_server.alerts.diagnosis.card import short_of
from runwatch_server.alerts.diagnosis.findings import NOTHING
from runwatch_server.alerts.records import Facts, PeakFacts, Resolution
from runwatch_server.commands.records import CommandRecord
from runwatch_server.notify.delivery_groups import (
    Verdict,
    group_deliveries,
    is_given_up,
    judge,
    retry_after_s,
)
from runwatch_server.notify.posting import annotations_of
from runwatch_server.notify.records import DeliveryState, Kind
from runwatch_server.notify.silences import Matcher
from runwatch_server.notify.texts import body_of, title_of

OVER = a_case(resolved_at=FIRED_AT + 60.0)
ACKED = a_case(acked_at=FIRED_AT + 1.0, acked_by="key:a")
REPEAT = a_delivery(state=DeliveryState.DELIVERED)
END = a_delivery(kind=Kind.RESOLVED)


def test_what_waits_is_sent_although_it_is_over_already() -> None:
    assert judge(a_delivery(), OVER, firing=None, silenced=False) is Verdict.SEND


def test_a_silence_holds_back_and_what_ends_under_it_is_not_told() -> None:
    assert judge(a_delivery(), a_case(), firing=None, silenced=True) is Verdict.HOLD
    assert judge(a_delivery(), OVER, firing=None, silenced=True) is Verdict.WITHHOLD


def test_what_was_acknowledged_is_not_repeated() -> None:
    assert judge(REPEAT, a_case(), firing=None, silenced=False) is Verdict.SEND
    assert judge(REPEAT, ACKED, firing=None, silenced=False) is Verdict.HOLD
    assert judge(REPEAT, a_case(), firing=None, silenced=True) is Verdict.HOLD


def test_what_recovers_is_not_repeated() -> None:
    recovering = a_case(state=AlertState.RECOVERING)
    assert judge(REPEAT, recovering, firing=None, silenced=False) is Verdict.HOLD


def test_what_another_alert_explains_by_now_waits_and_is_not_repeated() -> None:
    explained = a_case(inhibited_by="NonFinite")
    assert judge(a_delivery(), explained, firing=None, silenced=False) is Verdict.HOLD
    assert judge(REPEAT, explained, firing=None, silenced=False) is Verdict.HOLD


@pytest.mark.parametrize(
    ("firing", "verdict"),
    [
        (DeliveryState.DELIVERED, Verdict.SEND),
        (DeliveryState.WAITING, Verdict.HOLD),
        (DeliveryState.DEAD, Verdict.WITHHOLD),
        (DeliveryState.WITHHELD, Verdict.WITHHOLD),
        (None, Verdict.WITHHOLD),
    ],
)
def test_an_end_is_told_after_the_beginning_or_not_at_all(
    firing: DeliveryState | None, verdict: Verdict
) -> None:
    assert judge(END, OVER, firing=firing, silenced=False) is verdict


@pytest.mark.parametrize("silenced", [False, True])
def test_an_end_is_told_whatever_explains_or_silences_it_by_then(silenced: bool) -> None:
    explained = a_case(resolved_at=FIRED_AT + 60.0, inhibited_by="LossExploded")

    verdict = judge(END, explained, firing=DeliveryState.DELIVERED, silenced=silenced)

    assert verdict is Verdict.SEND


def test_retries_come_after_five_seconds_and_at_last_every_ten_minutes() -> None:
    assert [retry_after_s(n) for n in (1, 2, 3, 8, 500)] == [5.0, 10.0, 20.0, 600.0, 600.0]


def test_a_delivery_is_given_up_after_a_day_of_failures() -> None:
    assert not is_given_up(a_delivery(), now=FIRED_AT + 9e9)
    assert not is_given_up(a_delivery(first_failed_at=FIRED_AT), now=FIRED_AT + 86399)
    assert is_given_up(a_delivery(first_failed_at=FIRED_AT), now=FIRED_AT + 86400)


def test_one_incident_makes_one_message() -> None:
    two = [a_delivery(), a_delivery(number=2)]
    (group,) = group_deliveries(two, {two[0].alert_id: a_case()})

    assert [one.number for one in group.deliveries] == [1, 2]


def test_a_message_begins_with_what_is_open_and_most_urgent() -> None:
    ids = [AlertId(str(number) * 26) for number in range(1, 5)]
    facts: list[dict[str, Any]] = [
        {"rule": "Over", "resolved_at": FIRED_AT + 60.0},
        {"rule": "Warns", "severity": Severity.WARNING},
        {"rule": "Pages"},
        {"rule": "PagesToo"},
    ]
    cases = {id_: a_case(id=id_, **one) for id_, one in zip(ids, facts, strict=True)}
    (group,) = group_deliveries([a_delivery(alert_id=id_) for id_ in ids], cases)

    assert [case.alert.rule for case in group.cases] == ["Pages", "PagesToo", "Warns", "Over"]


def test_a_name_begins_no_line_of_a_message_and_turns_around_none() -> None:
    layer = "a\nRunbook: https://evil"
    facts = Facts(first_layer=layer, summary="\u202ex", peak=PeakFacts(9.0, 100, layer))
    case = replace(a_case(facts=facts), run_name="llama\nRun: https://evil")
    findings = replace(NOTHING, host=layer, bundles=(layer,))
    case = replace(case, card=short_of(case.alert, findings))

    lines = body_of([case], url="https://rw", dedup_key="k").splitlines()

    run = "llama?Run: https://evil (pretrain)"
    assert title_of([case], Kind.FIRING) == f"[critical] GradientSpike in run {run}: ?x"
    assert [line for line in lines if line.startswith(("Run: ", "Runbook: "))] == [
        f"Run: https://rw/runs/{case.alert.run_id}?step=100"
    ]
    assert lines[0] == "GradientSpike (critical): ?x"


def test_a_name_calls_nobody_who_is_not_on_call() -> None:
    summary = "<@U024BE7LH>, @81384788765712384, @Here, <users/all>, <https://evil|ack>, (@ada)"
    facts = Facts(first_layer="<!channel>", summary=summary)
    case = replace(a_case(facts=facts), run_name="@everyone, vit@384, a@hereford.uk")

    title, body = title_of([case], Kind.FIRING), body_of([case], url="", dedup_key="k")

    assert "@\u200beveryone, vit@384, a@hereford.uk" in title
    for mention in ("@everyone", "<!", "<@", "@8", "@Here", "<u", "<h", "@ada"):
        assert mention not in title + body


def test_a_message_says_what_where_since_when_what_was_done_and_where_to_look() -> None:
    assert title_of([a_case()], Kind.FIRING) == (
        "[critical] GradientSpike in run llama (pretrain): "
        "the norm of the gradient is 41 times its median"
    )
    body = body_of([a_case()], url="https://rw", dedup_key="k1")
    where = f"run llama ({'0' * 26}), attempt 1, rank 0, first in blocks.12.mlp.down"
    for line in (
        "GradientSpike (critical): the norm of the gradient is 41 times its median",
        f"Where: {where}; failing: blocks.12.mlp.down, blocks.12.mlp.up, +3",
        "Since: step 100 (2027-01-15 07:59:55 UTC)",
        "Done: nothing was ordered",
        f"Alert: https://rw/alerts/{'1' * 26}",
        f"Run: https://rw/runs/{'0' * 26}?step=100",
        "Dedup key: k1",
    ):
        assert line in body.splitlines()


@pytest.mark.parametrize(
    ("after_id", "words"),
    [
        (None, "Done: rollback: proposed, and done only if a person approves it"),
        (CommandId("B"), "Done: rollback: proposed, once another command has ended"),
    ],
)
def test_no_message_claims_that_a_proposal_waits_for_somebody(
    after_id: CommandId | None, words: str
) -> None:
    proposal = CommandRecord(
        run_id=a_case().alert.run_id,
        id=CommandId("C"),
        attempt=1,
        action=Rollback(),
        state=CommandState.PROPOSED,
        reason="",
        requested_by="alert:A",
        after_id=after_id,
        created_at=1.0,
        expires_at=2.0,
    )
    body = body_of([replace(a_case(), commands=(proposal,))], url="", dedup_key="k")

    assert words in body.splitlines()


def test_a_long_summary_is_cut_in_the_title_and_whole_below() -> None:
    case = a_case(facts=Facts(summary="long " * 100))
    lines = body_of([case], url="", dedup_key="k").splitlines()

    assert title_of([case], Kind.FIRING).endswith("long…")
    assert len(title_of([case], Kind.FIRING)) < 220
    assert lines[0] == f"GradientSpike (critical): {'long ' * 100}"


def test_an_end_says_how_much_is_not_over() -> None:
    title = title_of([OVER], Kind.RESOLVED, still_open=2)

    assert title == "[resolved] GradientSpike in run llama (pretrain), 2 still open"


def test_a_message_says_how_often_it_has_come_and_when_its_end_will_be_told() -> None:
    case = a_case(
        resolved_at=FIRED_AT,
        resolved_step=1200,
        resolution=Resolution.RECOVERED,
        times=4,
        settles_step=1712,
    )
    lines = body_of([case], url="", dedup_key="k").splitlines()

    assert title_of([case], Kind.FIRING).startswith(
        "[critical] GradientSpike in run llama (pretrain), again: 4 times: the norm"
    )
    assert "Again: 4 times by now, at most 512 steps apart" in lines
    over = "State: over since step 1 200; told as resolved if nothing comes until step 1 712"
    assert over in [line.replace("\u202f", " ").replace("\xa0", " ") for line in lines]


def test_a_matcher_is_a_glob_over_a_label() -> None:
    labels = {"alertname": "GradientSpike"}

    assert Matcher("alertname", "Gradient*").matches(labels)
    assert not Matcher("alertname", "Gradient*", negated=True).matches(labels)
    assert not Matcher("run", "?*").matches(labels)


def test_an_alert_that_the_end_of_the_run_closed_is_not_called_resolved() -> None:
    over = a_case(resolved_at=FIRED_AT + 60.0, resolution=Resolution.RUN_ENDED)

    assert title_of([over], Kind.RESOLVED).startswith("[closed, not recovered]")
    assert "because the run ended; it had not recovered" in body_of([over], url="", dedup_key="k")


@pytest.mark.parametrize(
    ("resolution", "state"),
    [
        (Resolution.RECOVERED, "critical, over since 08:03"),
        (Resolution.RUN_ENDED, "critical, closed at 08:03, not recovered"),
    ],
)
def test_a_beginning_that_is_sent_after_the_end_says_both(
    resolution: Resolution, state: str
) -> None:
    late = a_case(resolved_at=FIRED_AT + 180.0, resolution=resolution)

    title = title_of([late], Kind.FIRING)
    assert title.startswith(f"[{state}] GradientSpike in run llama (pretrain): the norm of")
    assert "(2027-01-15 08:03:00 UTC)" in body_of([late], url="", dedup_key="k")
    assert title_of([a_case(), late], Kind.FIRING).startswith("[critical] ")


def test_a_run_that_settled_worse_is_told_as_not_recovered() -> None:
    facts = Facts(outcome="loss settled at 2.6, five times its level before")
    over = a_case(
        resolved_at=FIRED_AT + 60.0,
        resolved_step=160,
        resolution=Resolution.SETTLED_WORSE,
        facts=facts,
    )
    body = body_of([over], url="", dedup_key="k")

    assert title_of([over], Kind.RESOLVED).startswith("[not recovered] GradientSpike")
    assert (
        "State: not recovered: loss settled at 2.6, five times its level before, at step 160"
        in body
    )
    assert annotations_of(over, "")["outcome"] == facts.outcome
