"""How long to wait, and what the service's clock says."""

import pytest

from runwatch_hooks.transport.backoff import Backoff
from runwatch_hooks.transport.clock import ServiceClock
from runwatch_hooks.transport.pace import Pace
from runwatch_hooks.transport.service import retry_after_s


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
