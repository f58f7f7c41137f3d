"""A command's signature: the same on both sides, and no other command's."""

import hmac

import msgspec
import pytest

from runwatch.commands import Command, Detail, LowerLr, Rollback, Stop
from runwatch.signatures import is_signed, signature_of
from runwatch.vocabulary import CommandId, RunId

RUN = RunId("01JD3Y8K5W0000000000000001")
OTHER_RUN = RunId("01JD3Y8K5W0000000000000002")
SECRET = bytes(range(32))

ORDER = Command(
    CommandId("01"), LowerLr(0.5), attempt=3, expires_at=1_700_000_000.25, reason="loss rose"
)


def signed(command: Command, secret: bytes = SECRET) -> Command:
    return msgspec.structs.replace(command, signature=signature_of(secret, RUN, command))


def test_a_signed_command_is_known_on_the_other_side_of_the_wire() -> None:
    arrived = msgspec.json.decode(msgspec.json.encode(signed(ORDER)), type=Command)

    assert is_signed(SECRET, RUN, arrived)


def test_the_signature_is_the_one_that_every_version_must_make() -> None:
    spoken_for = (
        b'["runwatch command 1","01JD3Y8K5W0000000000000001",3,"01",'
        b'{"kind":"lower_lr","scale":0.5},1700000000.25]'
    )

    assert signature_of(SECRET, RUN, ORDER) == hmac.digest(SECRET, spoken_for, "sha256").hex()


@pytest.mark.parametrize(
    "changed",
    [
        {"id": CommandId("02")},
        {"action": LowerLr(0.25)},
        {"action": Stop()},
        {"attempt": 4},
        {"expires_at": 1_700_000_000.5},
        {"signature": ""},
        {"signature": "0" * 64},
        {"signature": "\N{SNOWMAN}"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_command_that_was_changed_is_not_signed(changed: dict[str, object]) -> None:
    assert not is_signed(SECRET, RUN, msgspec.structs.replace(signed(ORDER), **changed))


def test_a_signature_holds_for_one_run_and_one_secret() -> None:
    assert not is_signed(SECRET, OTHER_RUN, signed(ORDER))
    assert not is_signed(bytes(32), RUN, signed(ORDER))


def test_what_nobody_obeys_may_be_said_in_other_words() -> None:
    assert is_signed(SECRET, RUN, msgspec.structs.replace(signed(ORDER), reason="LossSpike"))


@pytest.mark.parametrize("number", [1, 1.0])
def test_a_whole_number_signs_as_it_arrives(number: float) -> None:
    order = msgspec.structs.replace(ORDER, action=LowerLr(number), expires_at=number)
    arrived = msgspec.json.decode(msgspec.json.encode(signed(order)), type=Command)

    assert is_signed(SECRET, RUN, arrived)


def test_an_argument_left_to_its_default_is_not_spoken_of() -> None:
    """So that a side which knows an argument more, with a default, reads the same."""
    given, left_out = (
        msgspec.structs.replace(ORDER, action=action) for action in (Detail(steps=50), Detail())
    )

    assert signature_of(SECRET, RUN, given) == signature_of(SECRET, RUN, left_out)
    assert signature_of(SECRET, RUN, ORDER) != signature_of(
        SECRET, RUN, msgspec.structs.replace(ORDER, action=Rollback(before_step=0))
    )
