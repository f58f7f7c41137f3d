"""What the log and the readiness say while transactions are lost."""

import pytest
from tests.server.alerts.bench import HandClock

from runwatch_server.db.write_losses import WriteLosses

FULL = OSError("database or disk is full")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def losses(clock: HandClock) -> WriteLosses:
    return WriteLosses(lambda: clock.monotonic_s)


def test_a_disk_that_is_full_for_an_hour_is_a_line_a_minute(
    losses: WriteLosses, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3600):
        losses.lost(1, FULL, is_foreseen=True)
        clock.advance(1.0)

    assert len(caplog.records) == 60
    assert caplog.messages[0] == "a transaction of 1 works was lost: database or disk is full"
    assert "and 59 others since the last such line" in caplog.messages[1]


def test_the_end_of_the_losses_is_a_line_too(
    losses: WriteLosses, caplog: pytest.LogCaptureFixture
) -> None:
    losses.lost(1, FULL, is_foreseen=True)
    losses.lost(1, FULL, is_foreseen=True)
    losses.committed()
    losses.committed()

    assert caplog.messages[1:] == ["transactions are committed again; 1 were lost without a line"]


def test_losses_that_come_and_go_do_not_fill_the_log(
    losses: WriteLosses, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(600):
        losses.lost(1, FULL, is_foreseen=True)
        losses.committed()
        clock.advance(0.1)

    assert len(caplog.records) == 2


def test_an_error_that_nobody_foresaw_has_its_traceback(
    losses: WriteLosses, caplog: pytest.LogCaptureFixture
) -> None:
    losses.lost(1, KeyError("x"), is_foreseen=False)

    assert "KeyError" in caplog.text
    assert caplog.records[0].exc_info is not None


def test_transactions_are_lost_until_one_is_committed_or_a_minute_has_passed(
    losses: WriteLosses, clock: HandClock
) -> None:
    seen = [losses.is_losing]
    losses.lost(1, FULL, is_foreseen=True)
    seen.append(losses.is_losing)
    losses.committed()
    seen.append(losses.is_losing)
    losses.lost(1, FULL, is_foreseen=True)
    clock.advance(61.0)
    seen.append(losses.is_losing)

    assert seen == [False, True, False, False]
