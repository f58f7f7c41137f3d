"""Each message that the hook writes into a trainer's log begins with whose it is."""

import logging
import re
from pathlib import Path

import pytest

import runwatch_hooks
from runwatch_hooks.own_log import OwnLog, from_elsewhere

SOURCES = sorted(Path(runwatch_hooks.__file__).parent.rglob("*.py"))
MAKES_A_LOGGER = re.compile(r"\blog(?:ger)? = (.*)")


def test_a_message_says_whose_it_is_and_where_it_comes_from(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = OwnLog("runwatch_hooks.somewhere")

    log.warning("%d of %s", 3, "100%")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("a fault")

    assert [one.getMessage() for one in caplog.records] == [
        "runwatch: 3 of 100%",
        "runwatch: a fault",
    ]
    assert {one.name for one in caplog.records} == {"runwatch_hooks.somewhere"}
    assert {one.filename for one in caplog.records} == {Path(__file__).name}
    assert caplog.records[1].exc_info is not None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such run", "no such run"),
        ("two\nlines\r\nand \x1b[31mred", "two?lines??and ?[31mred"),
        ("2026\u2028CRITICAL \u202eback", "2026?CRITICAL ?back"),
        ("a" * 300, "a" * 300),
        ("a" * 301, "a" * 299 + "…"),
    ],
)
def test_text_from_elsewhere_is_one_short_line(text: str, shown: str) -> None:
    assert from_elsewhere(text) == shown


def test_message_that_others_cause_comes_at_most_so_often_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = OwnLog("runwatch_hooks.somewhere", clock=lambda: now[0])

    for second in range(130):
        now[0] = float(second)
        log.seldom(logging.WARNING, "frame %d is set aside", second, most=2)

    assert [one.getMessage() for one in caplog.records] == [
        "runwatch: frame 0 is set aside",
        "runwatch: frame 1 is set aside",
        "runwatch: frame 60 is set aside (58 more like it were left out)",
        "runwatch: frame 61 is set aside",
        "runwatch: frame 120 is set aside (58 more like it were left out)",
        "runwatch: frame 121 is set aside",
    ]
    assert {one.filename for one in caplog.records} == {Path(__file__).name}


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ValueError("I/O operation on closed file")


def test_a_handler_that_raises_ends_no_training() -> None:
    log, handler = OwnLog("runwatch_hooks.somewhere"), Raising()
    log.logger.addHandler(handler)
    try:
        log.warning("a step without a loss")
    finally:
        log.logger.removeHandler(handler)


def test_no_module_has_a_logger_of_another_kind() -> None:
    made = {
        (path.name, found) for path in SOURCES for found in MAKES_A_LOGGER.findall(path.read_text())
    }

    assert {kind for _, kind in made} == {
        "OwnLog(__name__)",
        'logging.getLogger("runwatch_hooks")',  # of the doctor, which silences them all
    }
    direct = re.compile(r"\blogging\.(debug|info|warning|error|exception|critical|log)\(")
    assert [path.name for path in SOURCES if direct.search(path.read_text())] == []


def test_no_message_says_it_twice() -> None:
    twice = [path.name for path in SOURCES if '"runwatch: ' in path.read_text()]

    assert twice == ["own_log.py"]
