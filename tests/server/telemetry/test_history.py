"""Which segment speaks for which step."""

from dataclasses import dataclass

from runwatch_server.telemetry.history import Stretch, attempts_in_time, effective_history


@dataclass(frozen=True)
class Start:
    attempt: int
    started_at: float
    live: bool = True


def test_a_rollback_undoes_what_came_after_it_at_once() -> None:
    history = effective_history([Stretch(1, 0, 0, 503), Stretch(1, 1, 480, 490)])

    assert history == [Stretch(1, 0, 0, 479), Stretch(1, 1, 480, 490)]


def test_a_second_rollback_goes_behind_the_first() -> None:
    segments = [Stretch(1, 0, 0, 99), Stretch(1, 1, 50, 99), Stretch(1, 2, 20, 30)]

    assert effective_history(segments) == [Stretch(1, 0, 0, 19), Stretch(1, 2, 20, 30)]


def test_a_rollback_to_the_start_leaves_nothing_of_the_first() -> None:
    segments = [Stretch(1, 0, 0, 99), Stretch(1, 1, 0, 9)]

    assert effective_history(segments) == [Stretch(1, 1, 0, 9)]


def test_an_attempt_replaces_only_the_steps_that_it_holds() -> None:
    history = effective_history([Stretch(1, 0, 0, 99), Stretch(2, 0, 40, 59)])

    assert history == [Stretch(1, 0, 0, 39), Stretch(2, 0, 40, 59), Stretch(1, 0, 60, 99)]


def test_segments_of_attempts_that_were_removed_are_left_out() -> None:
    segments = [Stretch(1, 0, 0, 99), Stretch(2, 0, 50, 60)]

    assert effective_history(segments, {2: 0}) == [Stretch(2, 0, 50, 60)]


def test_each_step_is_spoken_for_once() -> None:
    segments = [
        Stretch(1, 0, 0, 80),
        Stretch(2, 0, 60, 100),
        Stretch(2, 1, 70, 90),
        Stretch(3, 0, 10, 20),
    ]

    history = effective_history(segments)

    steps = [step for s in history for step in range(s.first_step, s.last_step + 1)]
    assert steps == list(range(91))


def test_an_attempt_that_was_sent_afterwards_stands_where_it_ran() -> None:
    offline = Start(3, started_at=150.0, live=False)

    places = attempts_in_time([Start(1, 100.0), Start(2, 200.0), offline])

    assert places == {1: 0, 3: 1, 2: 2}


def test_live_attempts_stand_as_they_came_whatever_their_clocks_say() -> None:
    assert attempts_in_time([Start(1, 900.0), Start(2, 200.0)]) == {1: 0, 2: 1}


def test_an_older_attempt_sent_afterwards_hides_nothing_of_the_newer() -> None:
    places = attempts_in_time([Start(1, 200.0), Start(2, 100.0, live=False)])

    history = effective_history([Stretch(1, 0, 300, 999), Stretch(2, 0, 0, 500)], places)

    assert history == [Stretch(2, 0, 0, 299), Stretch(1, 0, 300, 999)]
