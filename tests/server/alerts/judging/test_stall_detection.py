"""A process that stands still is told from one that is slow, and from a pause of everything."""

from runwatch_server.alerts.judging.stall_detection import StallDetector


def looks(detector: StallDetector, since: float | None, times: list[float]) -> list[bool]:
    return [detector.is_stalled(since, now) for now in times]


def test_a_process_is_stalled_when_one_thing_has_been_seen_for_too_long() -> None:
    assert looks(StallDetector(3.0), 10.0, [10.5, 11.5, 12.5, 13.5]) == [False, False, False, True]


def test_the_next_thing_has_all_of_the_time() -> None:
    detector = StallDetector(2.0)
    assert looks(detector, 10.0, [10.5, 11.5]) == [False, False]
    assert looks(detector, None, [12.5]) == [False]
    assert looks(detector, 13.0, [13.5, 14.5, 15.5]) == [False, False, True]


def test_a_pause_of_the_service_itself_counts_as_two_looks() -> None:
    """The process was paused with it, and goes on with it."""
    assert looks(StallDetector(4.0), 10.0, [10.5, 900.0, 901.0, 902.0]) == [False] * 3 + [True]


def test_the_next_process_has_twice_the_time_and_sixteen_times_at_most() -> None:
    detector = StallDetector(60.0)
    waits = []
    for _ in range(6):
        detector.restart()
        waits.append(detector.longest_s)
    assert waits == [120.0, 240.0, 480.0, 960.0, 960.0, 960.0]


def test_a_day_without_a_stuck_process_takes_the_doublings_back() -> None:
    detector = StallDetector(2.0)
    assert looks(detector, 10.0, [10.5, 11.5, 12.5]) == [False, False, True]
    detector.restart()
    assert looks(detector, 20.0, [20.5, 21.5, 22.5, 23.5, 24.5]) == [False] * 4 + [True]
    detector.restart()

    later = 24.5 + 86_400.0
    assert looks(detector, later, [later, later + 1.0, later + 2.0]) == [False, False, True]
