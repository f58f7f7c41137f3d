"""Actions are checked where they are made, and say the same on both sides of the wire."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.commands import (
    ACTION_KINDS,
    AnyAction,
    Checkpoint,
    Command,
    CommandState,
    LowerLr,
    Receipt,
    Rollback,
    Stop,
    action_from_document,
)
from runwatch.errors import CommandError
from runwatch.vocabulary import CommandId

steps = st.none() | st.integers(0, 2**53)
actions = st.one_of(
    st.just(Checkpoint()),
    st.just(Stop()),
    st.builds(LowerLr, st.floats(0, 1, exclude_min=True)),
    st.builds(Rollback, steps, steps),
)


@given(actions)
def test_a_command_survives_the_wire(action: AnyAction) -> None:
    command = Command(CommandId("01"), action, attempt=1, expires_at=2.0, reason="loss rose")

    assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command


def test_a_receipt_survives_the_wire() -> None:
    receipt = Receipt(CommandId("01"), 1, 0, CommandState.FAILED, 7, {"error": "disk full"})

    assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt


def test_every_kind_has_its_name() -> None:
    assert ACTION_KINDS == ("checkpoint", "detail", "lower_lr", "rollback", "stop")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "lower_lr", "scale": 0}, "scale: found 0.0, wanted more than 0"),
        ({"kind": "lower_lr", "scale": 1.5}, "scale: found 1.5"),
        ({"kind": "lower_lr"}, "missing required field `scale`"),
        ({"kind": "rollback", "before_step": -1}, "before_step: found -1"),
        ({"kind": "rollback", "before_step": 2**70}, "wanted a step from 0 to 9007199254740992"),
        ({"kind": "rollback", "to_step": 2**53 + 1}, "to_step: found 9007199254740993"),
        ({"kind": "reboot"}, "Invalid value 'reboot'"),
        ({"kind": "stop", "now": True}, "unknown field `now`"),
        ("stop", "Expected `object`"),
    ],
)
def test_an_action_that_makes_no_sense_is_refused(document: object, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        action_from_document(document)


def test_only_the_five_ends_are_ends() -> None:
    assert {state for state in CommandState if state.is_ended} == {
        CommandState.APPLIED,
        CommandState.FAILED,
        CommandState.REJECTED,
        CommandState.EXPIRED,
        CommandState.CANCELLED,
    }
