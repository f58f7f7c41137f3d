"""How long to wait, and what the service's clock says."""

import pytest

from runwatch_hooks.uplink.sender import Pace
from runwatch_hooks.uplink.service import Backoff, ServiceClock, retry_after_s


def test_pauses_double_up_to_a_minute() -> None:
    backoff = Backoff()

    pauses = [backoff.failed(jitter=0.0) for _ in range(9)]

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_jitter_shortens_a_pause_by_up_to_a_half() -> None:
    assert Backoff().failed(jitter=1.0) == 0.25


def test_a_success_begins_anew() -> None:
    backoff = Backoff()
    backoff.failed(jitter=0.0)
    backoff.succeeded()

    assert backoff.failed(jitter=0.0) == 0.5


def test_the_services_own_wish_is_never_cut_short() -> None:
    assert Backoff().failed(jitter=0.0, retry_after_s=7.0) == 7.0
    assert Backoff().failed(jitter=1.0, retry_after_s=7.0) == 10.5


def test_a_service_that_asks_for_no_pause_gets_one() -> None:
    assert Backoff().failed(jitter=0.0, retry_after_s=0.0) == 0.5


def test_retry_after_is_read_in_seconds() -> None:
    assert retry_after_s("7") == 7.0
    assert retry_after_s("1e9") == 3600.0
    assert [retry_after_s(text) for text in (None, "soon", "-1", "nan")] == [None] * 4


def test_the_quickest_reply_tells_the_clock_best() -> None:
    clock = ServiceClock(running=lambda: 50.0)
    clock.observe(service_time=109.0, sent_at=0.0, received_at=10.0)
    clock.observe(service_time=120.5, sent_at=20.0, received_at=21.0)
    clock.observe(service_time=139.0, sent_at=30.0, received_at=40.0)

    assert clock.now() == 150.0


def test_a_machines_clock_that_is_set_moves_no_order() -> None:
    clock = ServiceClock(wall=lambda: 3600.0, running=lambda: 8.0)
    assert clock.now() == 3600.0, "all there is before the first reply"
    clock.observe(service_time=1000.0, sent_at=4.0, received_at=6.0)

    assert clock.now() == 1003.0


@pytest.mark.parametrize("set_by_s", [-86_400.0, 7_200.0])
def test_a_services_clock_that_is_set_is_followed_at_its_next_reply(set_by_s: float) -> None:
    clock = ServiceClock(running=lambda: 50.0)
    clock.observe(service_time=1_000.5, sent_at=0.0, received_at=1.0)
    clock.observe(service_time=1_015.0 + set_by_s, sent_at=10.0, received_at=20.0)

    assert clock.now() == 1_050.0 + set_by_s


def clock_that_is(*ahead_s: float, round_trip_s: float = 0.0) -> ServiceClock:
    """The clock of a machine that is so far ahead of the service, each time it is asked."""
    walls = iter(1000.0 + one for one in ahead_s)
    clock = ServiceClock(wall=lambda: next(walls), running=lambda: 50.0)
    middle = 1000.0 - round_trip_s / 2
    clock.observe(service_time=middle, sent_at=50.0 - round_trip_s, received_at=50.0)
    return clock


@pytest.mark.parametrize(
    ("ahead_s", "round_trip_s", "told_s"),
    [(4.0, 0.0, None), (6.0, 0.0, 6.0), (-90.0, 0.0, -90.0), (6.0, 4.0, None), (9.0, 4.0, 9.0)],
)
def test_a_machines_clock_that_is_surely_off_is_told(
    ahead_s: float, round_trip_s: float, told_s: float | None
) -> None:
    found = clock_that_is(ahead_s, round_trip_s=round_trip_s).take_error()

    assert found == (None if told_s is None else pytest.approx(told_s))


def test_a_clock_that_is_off_is_told_once_and_again_when_it_is_set() -> None:
    clock = clock_that_is(60.0, 60.0, 62.0, 70.0, 0.0, 60.0)

    told = [clock.take_error() for _ in range(6)]

    assert told == [60.0, None, None, 70.0, None, 60.0]


def test_before_the_first_reply_no_clock_is_off() -> None:
    assert ServiceClock(wall=lambda: 1e9, running=lambda: 0.0).take_error() is None


def test_rows_of_a_calm_run_travel_in_bundles() -> None:
    pace = Pace(close_s=0.2, calm_s=1.0, now=100.0)

    at_first = [pace.interval_s(now) for now in (100.0, 109.9)]
    calm = [pace.interval_s(now) for now in (110.0, 5000.0)]

    assert at_first == [0.2, 0.2]
    assert calm == [1.0, 1.0]


def test_what_follows_something_urgent_is_sent_close_behind_it() -> None:
    pace = Pace(close_s=0.2, calm_s=1.0, now=0.0)
    pace.stir(500.0)

    assert [pace.interval_s(now) for now in (500.0, 509.9, 510.0)] == [0.2, 0.2, 1.0]


def test_a_calm_run_is_not_sent_more_often_than_any_other() -> None:
    assert Pace(close_s=3.0, calm_s=1.0, now=0.0).interval_s(60.0) == 3.0
