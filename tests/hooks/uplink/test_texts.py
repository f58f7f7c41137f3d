"""What the service could not store is sent as a question mark, and the rest as it is."""

import math

from runwatch.commands import CommandState, Receipt
from runwatch.frames import Event
from runwatch.vocabulary import CommandId
from runwatch_hooks.uplink.service import (
    sendable,
    sendable_document,
    sendable_event,
    sendable_receipt,
)


def test_a_zero_byte_and_half_a_surrogate_become_question_marks() -> None:
    assert sendable("a\0b\udc80c") == "a?b?c"


def test_every_text_of_a_document_is_made_sendable_and_no_number() -> None:
    found = sendable_document({"a\0": ["\0", 1, None, {"b": (True, "\udc80")}]})

    assert found == {"a?": ["?", 1, None, {"b": [True, "?"]}]}


def test_a_number_that_json_lacks_is_named_and_not_nulled() -> None:
    found = sendable_document({"clip": math.inf, "betas": [-math.inf, 0.5], "eps": math.nan})

    assert found == {"clip": "+Inf", "betas": ["-Inf", 0.5], "eps": "NaN"}


def test_an_event_keeps_its_step_and_time() -> None:
    found = sendable_event(Event(3, "pha\0se", 1.5, {"layers": ["\0"]}))

    assert found == Event(3, "pha?se", 1.5, {"layers": ["?"]})


def test_a_receipt_keeps_its_state_and_step() -> None:
    receipt = Receipt(CommandId("c1"), 1, 0, CommandState.APPLIED, 7, {"path": "a\udce8"})

    found = sendable_receipt(receipt)

    assert found == Receipt(CommandId("c1"), 1, 0, CommandState.APPLIED, 7, {"path": "a?"})
