"""Times as people are shown them."""

from runwatch_server.clock import rfc3339


def test_a_time_that_no_calendar_has_is_the_nearest_that_it_has() -> None:
    assert rfc3339(1.7e9).isoformat() == "2023-11-14T22:13:20+00:00"
    assert rfc3339(1e300).year == 9999
    assert rfc3339(-1e300).year == 1970
