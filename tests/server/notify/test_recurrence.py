"""When a window that recurs is open: by the clock of its place, summer time and all."""

import re
import time
import zoneinfo
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from runwatch_server.errors import UnprocessableError
from runwatch_server.notify.recurrence import Recurrence

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_S = 3600.0
NIGHTLY = Recurrence(cron="30 2 * * *", for_s=2 * HOUR_S, timezone="Europe/Berlin")


def at(text: str) -> float:
    """A moment, by the clock on the wall in Berlin; `fold=1` marks the later of two."""
    text, _, fold = text.partition(" fold=")
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=int(fold or 0)).timestamp()


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-11-22T02:29:59", False),
        ("2026-11-22T02:30:00", True),
        ("2026-11-22T04:29:59", True),
        ("2026-11-22T04:30:00", False),
        ("2026-07-22T02:30:00", True),  # the same hour on the wall, another one in UTC
        ("2026-07-22T02:29:59", False),
    ],
)
def test_a_window_opens_by_the_clock_on_the_wall(moment: str, is_open: bool) -> None:
    assert NIGHTLY.covers(at(moment)) is is_open


def test_a_weekly_window_over_midnight_is_open_on_both_days() -> None:
    weekly = Recurrence(cron="0 22 * * sat", for_s=8 * HOUR_S, timezone="Europe/Berlin")

    assert weekly.covers(at("2026-11-21T23:00:00"))
    assert weekly.covers(at("2026-11-22T05:59:59"))
    assert not weekly.covers(at("2026-11-22T06:00:00"))
    assert not weekly.covers(at("2026-11-22T23:00:00"))
    assert weekly.next_after(at("2026-11-22T06:00:00")) == at("2026-11-28T22:00:00")


def test_what_begins_in_the_hour_that_is_left_out_begins_an_hour_later_and_lasts_as_long() -> None:
    """In the night of 29 March 2026 half past two does not come."""
    assert not NIGHTLY.covers(at("2026-03-29T03:29:59"))
    assert NIGHTLY.covers(at("2026-03-29T03:30:00"))
    assert NIGHTLY.covers(at("2026-03-29T05:29:59"))
    assert not NIGHTLY.covers(at("2026-03-29T05:30:00"))


def test_what_begins_in_the_hour_that_comes_twice_begins_twice() -> None:
    """In the night of 25 October 2026 half past two comes at 00:30 and at 01:30 UTC."""
    assert NIGHTLY.next_after(at("2026-10-25T02:00:00")) == at("2026-10-25T02:30:00")
    assert NIGHTLY.next_after(at("2026-10-25T02:30:00")) == at("2026-10-25T02:30:00 fold=1")
    assert NIGHTLY.covers(at("2026-10-25T04:29:59"))
    assert not NIGHTLY.covers(at("2026-10-25T04:30:00"))


def test_the_day_after_the_clocks_went_forward_has_its_first_hour() -> None:
    """Monday, 30 March 2026, seen from before the change and from under it."""
    after_midnight = Recurrence(cron="30 0 * * mon", for_s=36 * HOUR_S, timezone="Europe/Berlin")
    begins = at("2026-03-30T00:30:00")

    assert after_midnight.next_after(at("2026-03-28T12:00:00")) == begins
    assert after_midnight.next_after(at("2026-03-29T00:45:00")) == begins
    assert after_midnight.covers(at("2026-03-30T12:00:00"))


def test_what_comes_in_the_hours_that_are_missing_mixes_with_what_comes_after_them() -> None:
    """Each 20 minutes on from half past two, when two o'clock is followed by three."""
    often = Recurrence(cron="10,30,50 2-3 * * *", for_s=60, timezone="Europe/Berlin")
    first = at("2026-03-29T03:10:00")
    found = [first]
    for _ in range(2):
        found.append(often.next_after(found[-1]) or 0.0)

    assert often.next_after(at("2026-03-29T01:59:00")) == first
    assert found == [first, first + 1200, first + 2400]


def test_a_clock_that_is_set_by_two_hours_leaves_nothing_out() -> None:
    """Antarctica/Troll, in the night of 29 March 2026: from one to three o'clock."""
    nightly = Recurrence(cron="15 1 * * *", for_s=60, timezone="Antarctica/Troll")
    begins = datetime.fromisoformat("2026-03-29T01:15:00+00:00").timestamp()

    assert nightly.next_after(begins - 1800) == begins
    assert nightly.next_after(begins - 60) == begins


def test_a_clock_that_is_set_at_midnight_has_the_day_begin_late() -> None:
    """Cairo, 24 April 2026: what should begin at midnight begins at one."""
    daily = Recurrence(cron="0 0 * * *", for_s=60, timezone="Africa/Cairo")
    begins = datetime.fromisoformat("2026-04-24T01:00:00+03:00").timestamp()

    assert daily.next_after(begins - 7200) == begins
    assert daily.next_after(begins) == begins + 23 * HOUR_S


def test_windows_by_the_minute_are_reckoned_at_little_cost() -> None:
    """Seconds of the processor: 1000 took ten and more, one after another on the event loop."""
    always = Recurrence(cron="* * * * *", for_s=HOUR_S, timezone="Europe/Berlin")
    began = time.process_time()

    assert all(always.covers(at("2026-11-22T12:00:00") + count) for count in range(1000))
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"cron": "0 2 * *"}, "five fields"),
        ({"cron": "61 2 * * *"}, "61"),
        ({"cron": "*/0 2 * * *"}, re.escape("cron: found '*/0 2 * * *': Increment")),
        ({"cron": "0 2 * * 6"}, "wanted names"),
        ({"cron": "0 2 * * saturday"}, "weekday name"),
        ({"cron": "0 2 30 2 *"}, "does not come within a year"),
        ({"timezone": "Berlin"}, "Europe/Berlin"),
        ({"timezone": "../../etc/passwd"}, "Europe/Berlin"),
        ({"timezone": ""}, "Europe/Berlin"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(facts: dict[str, str], words: str) -> None:
    recurrence = Recurrence(**({"cron": "0 2 * * *", "timezone": "UTC"} | facts), for_s=HOUR_S)

    with pytest.raises(UnprocessableError, match=words):
        recurrence.check(at("2026-11-22T00:00:00"))


@pytest.fixture
def no_zones() -> Iterator[None]:
    """A machine without a database of time zones, as some slim images are."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=())
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(to=before)
    ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_zones")
def test_a_machine_without_time_zones_knows_those_of_the_package() -> None:
    pytest.importorskip("tzdata")
    daily = Recurrence(cron="0 12 * * *", for_s=HOUR_S, timezone="Asia/Tokyo")

    assert daily.covers(datetime.fromisoformat("2026-11-22T12:00:00+09:00").timestamp())


@pytest.mark.usefixtures("no_zones")
def test_a_machine_without_time_zones_knows_utc() -> None:
    daily = Recurrence(cron="0 12 * * *", for_s=HOUR_S)

    assert daily.covers(datetime.fromisoformat("2026-11-22T12:00:00+00:00").timestamp())


def test_a_window_in_a_zone_that_is_not_known_here_holds_nothing_back() -> None:
    """One that another replica took in must not keep this one from telling."""
    always = Recurrence(cron="* * * * *", for_s=HOUR_S, timezone="Asia/Atlantis")

    assert not always.covers(at("2026-11-22T12:00:00"))
    assert always.next_after(at("2026-11-22T12:00:00")) is None
