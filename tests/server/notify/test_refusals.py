"""Why a message was refused, as found in Apprise's log: known signs, and no text of its own."""

import logging

import pytest

from runwatch_server.notify.refusals import listening, reason_in, take_over_log


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("Failed to send JSON POST notification: Bad, error=404.", "with the status 404"),
        ("Failed to send to Slack: Unauthorized, error=403.", "with the status 403"),
    ],
)
def test_a_status_is_read_from_a_warning(entry: str, reason: str) -> None:
    assert reason_in(entry, is_answer=True) == f"it answered {reason}"
    assert reason_in(f"JSON Payload: {entry}", is_answer=False) is None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("Socket Exception: ... Read timed out. (read timeout=10)", "it did not answer in time"),
        (
            "Socket Exception: [SSL: CERTIFICATE_VERIFY_FAILED]",
            "its TLS certificate is not trusted",
        ),
        ("Socket Exception: (535, b'5.7.8 bad')", "its mail server answered with the code 535"),
    ],
)
def test_an_exception_is_told_in_our_words(entry: str, reason: str) -> None:
    assert (reason_in(entry, is_answer=False) or "").startswith(reason)


@pytest.mark.parametrize(
    "entry",
    [
        "JSON Payload: {'message': 'timed out'}",
        "Response Details: error=500",
        "Socket Exception: ?",
    ],
)
def test_what_was_sent_or_answered_is_no_reason(entry: str) -> None:
    assert reason_in(entry, is_answer=False) is None


def test_an_entry_with_wrong_arguments_does_not_end_the_sending() -> None:
    take_over_log()
    log = logging.getLogger("apprise")
    with listening() as heard:
        # As Apprise's plug-in for Office 365 writes an address.
        log.debug("Office 365 %s URL: https://example.com/users/a%40b", "POST")
        log.warning("Failed to send Office 365 notification: error=403.")

    assert heard.reason == "it answered with the status 403"
