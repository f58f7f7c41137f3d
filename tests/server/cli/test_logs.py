"""What a service's log looks like where no terminal shows it."""

import io
import logging
import re

import pytest

from runwatch_server.cli.logs import LineFormatter


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(lines: io.StringIO) -> logging.Logger:
    handler = logging.StreamHandler(lines)
    handler.setFormatter(LineFormatter())
    logger = logging.Logger("runwatch_server.runs")
    logger.addHandler(handler)
    return logger


def test_a_record_is_one_line_with_its_time_in_utc(log: logging.Logger, lines: io.StringIO) -> None:
    log.warning("run %s: %s", "a" * 200, "has ended")

    time, rest = lines.getvalue().split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == f"WARNING runwatch_server.runs: run {'a' * 200}: has ended\n"


def test_a_name_can_neither_feign_a_line_nor_command_a_terminal(
    log: logging.Logger, lines: io.StringIO
) -> None:
    log.warning("run %s", "x\n2026-01-01T00:00:00.000Z ERROR all: \x1b[2Jlost")

    (line,) = lines.getvalue().splitlines()
    assert line.endswith("run x?2026-01-01T00:00:00.000Z ERROR all: ?[2Jlost")


def test_a_traceback_follows_its_record(log: logging.Logger, lines: io.StringIO) -> None:
    try:
        raise ValueError("\x1b]0;title\x07")
    except ValueError:
        log.exception("it failed")

    first, *traceback = lines.getvalue().splitlines()
    assert first.endswith("ERROR runwatch_server.runs: it failed")
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "ValueError: ?]0;title?"
