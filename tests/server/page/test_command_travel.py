"""The way of a command as the page draws it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from runwatch.commands import AnyAction, Checkpoint, CommandState, LowerLr, Rollback, Stop
from runwatch.vocabulary import CommandId, PolicyMode, RunId
from runwatch_server.alerts.records import Recovery
from runwatch_server.commands.records import CommandEvent, CommandRecord
from runwatch_server.page.command_travel import Travel, travel_of, words_of

RUN, ID = RunId("R"), CommandId("C")
ROLLBACK = CommandRecord(
    run_id=RUN,
    id=ID,
    attempt=1,
    action=Rollback(),
    state=CommandState.QUEUED,
    reason="",
    requested_by="key:a",
    created_at=1.0,
    expires_at=601.0,
)


def event(kind: str, *, rank: int | None = None, **detail: object) -> CommandEvent:
    return CommandEvent(
        number=0, run_id=RUN, command_id=ID, kind=kind, rank=rank, at=2.0, actor="a", detail=detail
    )


def receipt(rank: int, state: str, step: int) -> CommandEvent:
    return event("receipt", rank=rank, state=state, step=step)


def drawn(travel: Travel) -> Mapping[str, str]:
    return {station.name: station.standing.value for station in travel.stations}


def test_a_proposal_waits_at_its_first_station() -> None:
    travel = travel_of(replace(ROLLBACK, state=CommandState.PROPOSED), [event("proposed")])

    assert drawn(travel) == {
        "Proposed": "here",
        "Queued": "ahead",
        "Delivered": "ahead",
        "Agreed": "ahead",
        "Applied": "ahead",
    }


@pytest.mark.parametrize(
    ("state", "events", "outcome"),
    [
        (CommandState.PROPOSED, ["proposed"], "Proposed"),
        (CommandState.DELIVERED, ["queued", "delivered"], "On its way"),
        (CommandState.APPLIED, ["queued", "delivered", "accepted", "applied"], "Rolled back"),
        (CommandState.REJECTED, ["queued", "delivered"], "Refused"),
        (CommandState.FAILED, ["queued", "delivered"], "Failed"),
        (CommandState.EXPIRED, ["queued"], "Expired"),
        (CommandState.CANCELLED, ["proposed"], "Rejected"),
        (CommandState.CANCELLED, ["proposed", "queued"], "Withdrawn"),
    ],
)
def test_the_heading_of_a_command_is_its_outcome(
    state: CommandState, events: list[str], outcome: str
) -> None:
    travel = travel_of(replace(ROLLBACK, state=state), [event(kind) for kind in events])

    assert travel.outcome == outcome


@pytest.mark.parametrize("recovery", [None, *Recovery])
def test_a_rollback_is_called_one_whatever_came_of_it(recovery: Recovery | None) -> None:
    command = replace(ROLLBACK, state=CommandState.APPLIED)

    assert travel_of(command, [event("applied")], recovery=recovery).outcome == "Rolled back"


@pytest.mark.parametrize(
    ("policy", "after_id", "waits"),
    [
        (PolicyMode.ASK, None, True),
        (PolicyMode.OBSERVE, None, False),
        (PolicyMode.AUTO, CommandId("B"), False),
    ],
)
def test_only_under_ask_a_proposal_waits_for_a_person(
    policy: PolicyMode, after_id: CommandId | None, waits: bool
) -> None:
    command = replace(ROLLBACK, state=CommandState.PROPOSED, after_id=after_id)
    travel = travel_of(command, [event("proposed")], policy=policy)

    assert (travel.is_awaited, travel.needs_attention) == (waits, waits)


def test_approving_what_the_trainer_does_not_allow_is_in_vain() -> None:
    command = replace(ROLLBACK, state=CommandState.PROPOSED)

    assert travel_of(command, [event("proposed")]).is_allowed
    assert not travel_of(command, [event("proposed")], allow={"checkpoint"}).is_allowed


def test_what_was_delivered_waits_for_the_ranks_to_agree() -> None:
    command = replace(ROLLBACK, state=CommandState.DELIVERED)

    travel = travel_of(command, [event("queued"), event("delivered")])

    assert drawn(travel) == {
        "Queued": "done",
        "Delivered": "done",
        "Agreed": "here",
        "Applied": "ahead",
    }


def test_each_rank_s_last_word_counts() -> None:
    command = replace(ROLLBACK, state=CommandState.ACCEPTED)
    events = [
        *(event("queued"), event("delivered"), event("accepted")),
        *(receipt(0, "accepted", 40), receipt(1, "accepted", 40), receipt(0, "applied", 41)),
    ]

    travel = travel_of(command, events, num_ranks=2)

    assert [(one.rank, one.state) for one in travel.answers] == [(0, "applied"), (1, "accepted")]


def test_applied_says_at_which_step_and_where_it_led() -> None:
    command = replace(ROLLBACK, state=CommandState.APPLIED, detail={"to_step": 30})
    events = [event("queued"), receipt(0, "applied", 41), event("applied")]

    travel = travel_of(command, events, recovery=Recovery.RECOVERED)

    assert travel.stations[3].words == "at step 41, back to the state after step 30"
    assert drawn(travel)["Recovered"] == "done"


def test_a_refusal_ends_the_road_and_says_why() -> None:
    command = replace(ROLLBACK, state=CommandState.REJECTED, detail={"error": "not allowed"})

    travel = travel_of(command, [event("queued"), event("delivered"), event("rejected")])

    assert drawn(travel) == {"Queued": "done", "Delivered": "done", "Refused": "broken"}
    assert travel.stations[-1].words == "not allowed"


def test_a_proposal_is_rejected_and_what_was_sent_is_withdrawn() -> None:
    command = replace(ROLLBACK, state=CommandState.CANCELLED)

    proposal = travel_of(command, [event("proposed"), event("cancelled")])
    order = travel_of(command, [event("queued"), event("cancelled")])
    by_us = travel_of(
        replace(command, detail={"reason": "its alert has recovered"}),
        [event("proposed"), event("cancelled")],
    )

    assert drawn(proposal) == {"Proposed": "done", "Rejected": "broken"}
    assert drawn(order) == {"Queued": "done", "Withdrawn": "broken"}
    assert drawn(by_us) == {"Proposed": "done", "Withdrawn": "broken"}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Checkpoint(), "Write a checkpoint"),
        (LowerLr(0.5), "Train at 0.5 × the schedule's learning rate"),
        (Rollback(), "Roll back to the newest good state"),
        (Rollback(before_step=9), "Roll back to the newest good state before step 9"),
        (Rollback(to_step=9), "Roll back to the state after step 9"),
        (
            Rollback(to_step=9, before_step=12),
            "Roll back to the state after step 9, without the batches of 12",
        ),
        (Rollback(to_step=0), "Roll back to the state after step 0"),
        (Stop(), "Stop the run"),
    ],
)
def test_every_action_has_words(action: AnyAction, words: str) -> None:
    assert words_of(action) == words
