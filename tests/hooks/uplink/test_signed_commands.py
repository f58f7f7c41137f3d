"""A trainer that was given a secret obeys nothing that is not signed with it."""

import time
from pathlib import Path

import msgspec
from tests.hooks.uplink.factories import RUN, started
from tests.hooks.uplink.stub_service import StubService
from tests.waiting import until

from runwatch.commands import Command, CommandState, LowerLr
from runwatch.signatures import signature_of
from runwatch.vocabulary import CommandId, RunId
from runwatch_hooks.uplink import Uplink

SECRET = bytes(range(32))
ORDER = Command(CommandId("command-1"), LowerLr(0.5), attempt=1, expires_at=time.time() + 3600.0)


def signed(command: Command, *, secret: bytes = SECRET, run_id: RunId = RUN.run_id) -> Command:
    return msgspec.structs.replace(command, signature=signature_of(secret, run_id, command))


def taken_by(uplink: Uplink) -> list[Command]:
    """What a trainer is handed on, once there is something."""
    taken: list[Command] = []

    def take() -> int:
        taken.extend(uplink.take_commands())
        return len(taken)

    until(take)
    return taken


def refusals(tmp_path: Path, service: StubService, sent: Command) -> list[object]:
    """What the trainer answers to a command that it must not take."""
    service.secret = SECRET
    uplink = started(tmp_path, service.url)
    service.send(sent)
    until(lambda: service.receipts)
    uplink.close("finished")

    assert uplink.take_commands() == []
    (receipt,) = service.receipts
    assert receipt.state is CommandState.REJECTED
    return [receipt.detail["signature"], "signature: found" in str(receipt.detail["error"])]


def test_a_command_with_the_signature_is_taken(tmp_path: Path, service: StubService) -> None:
    service.secret = SECRET
    uplink = started(tmp_path, service.url)
    service.send(signed(ORDER))
    taken = taken_by(uplink)
    uplink.close("finished")

    assert taken == [signed(ORDER)]


def test_one_without_is_refused_and_the_receipt_says_why(
    tmp_path: Path, service: StubService
) -> None:
    assert refusals(tmp_path, service, ORDER) == ["missing", True]


def test_one_with_another_argument_is_refused(tmp_path: Path, service: StubService) -> None:
    tampered = msgspec.structs.replace(signed(ORDER), action=LowerLr(0.001))

    assert refusals(tmp_path, service, tampered) == ["wrong", True]


def test_one_that_was_made_for_another_run_is_refused(tmp_path: Path, service: StubService) -> None:
    foreign = signed(ORDER, run_id=RunId("01JD3Y8K5W0000000000000009"))

    assert refusals(tmp_path, service, foreign) == ["wrong", True]


def test_one_of_the_attempt_before_cannot_be_passed_off_as_of_this_one(
    tmp_path: Path, service: StubService
) -> None:
    before = signed(msgspec.structs.replace(ORDER, attempt=0), secret=bytes(32))

    assert refusals(tmp_path, service, msgspec.structs.replace(before, attempt=1)) == [
        "wrong",
        True,
    ]


def test_of_a_service_that_gave_no_secret_no_signature_is_wanted(
    tmp_path: Path, service: StubService
) -> None:
    uplink = started(tmp_path, service.url)
    service.send(ORDER)
    taken = taken_by(uplink)
    uplink.close("finished")

    assert taken == [ORDER]


def test_what_was_announced_once_is_wanted_from_a_service_that_forgot_it(
    tmp_path: Path, service: StubService
) -> None:
    service.secret = SECRET
    uplink = started(tmp_path, service.url)
    until(lambda: service.beats)
    service.secret = b""
    service.forget()
    num_beats = len(service.beats)
    until(lambda: len(service.beats) > num_beats)
    service.send(ORDER)
    until(lambda: service.receipts)
    uplink.close("finished")

    assert [receipt.detail["signature"] for receipt in service.receipts] == ["missing"]
