"""Why a receiver did not take a message, in our words.

Apprise says so in its log only, which may quote addresses, and those hold secrets. So its entries
are searched for a few known signs and dropped. No text of theirs is handed on.
"""

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from threading import local
from typing import Final

UNKNOWN: Final = "it refused the message, or did not answer"
TOO_LATE: Final = "it did not answer in time"

_STATUS: Final = re.compile(r"\berror=([1-5]\d\d)\b")
_MAIL_CODE: Final = re.compile(r"\(([45]\d\d), b['\"]")
_EXCEPTION: Final = re.compile(r"Socket (Timeout )?Exception")
"""How the entries begin in which Apprise's plug-ins quote an exception. Others quote what was sent
and answered, which may contain anything."""
_SIGNS: Final = (
    ("is not allowed", "it leads to an address outside of allow_networks"),
    ("too long", TOO_LATE),
    ("timed out", TOO_LATE),
    ("failed to resolve", "its host name is not known here"),
    ("name or service not known", "its host name is not known here"),
    ("name resolution", "its host name is not known here"),
    ("certificate_verify_failed", "its TLS certificate is not trusted here"),
    ("connection refused", "nothing listens at its address"),
    ("unreachable", "its network cannot be reached from here"),
)
"""What the exceptions of sockets, TLS and HTTP clients contain, and ours of `networks.py`."""


class _Heard(local):
    is_listening = False
    reason: str = UNKNOWN


_heard: Final = _Heard()


def _read_and_drop(record: logging.LogRecord) -> bool:
    if _heard.is_listening:
        is_answer = record.levelno >= logging.WARNING
        found = reason_in(_text_of(record), is_answer=is_answer)
        _heard.reason = found or _heard.reason
    return False


def _text_of(record: logging.LogRecord) -> str:
    """Empty if it has other arguments than it names. Some entries of Apprise are formatted twice,
    so an address with a percent sign is enough; raised here, that would end the sending."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return ""


def reason_in(entry: str, *, is_answer: bool) -> str | None:
    """The reason that an entry of Apprise's log gives; None if it gives none that is known."""
    if is_answer:
        answered = _STATUS.search(entry)
        return None if answered is None else f"it answered with the status {answered[1]}"
    if not _EXCEPTION.match(entry):
        return None
    if code := _MAIL_CODE.search(entry):
        return f"its mail server answered with the code {code[1]}"
    return next((reason for sign, reason in _SIGNS if sign in entry.lower()), None)


@contextmanager
def listening() -> Generator[_Heard]:
    """Within this context, entries of Apprise's log on this thread are searched; `reason` is the
    newest that was found, or UNKNOWN."""
    _heard.is_listening, _heard.reason = True, UNKNOWN
    try:
        yield _heard
    finally:
        _heard.is_listening = False


def take_over_log() -> None:
    """From now on each entry of Apprise's log is searched, and no handler gets any."""
    log = logging.getLogger("apprise")
    log.addFilter(_read_and_drop)  # a second time changes nothing
    log.setLevel(logging.DEBUG)  # exceptions are logged at this level only
