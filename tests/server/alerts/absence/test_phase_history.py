"""How long phases lasted, of the events of their edges."""

from runwatch.vocabulary import Phase
from runwatch_server.alerts.absence.phase_history import longest_s
from runwatch_server.alerts.records import RunEvent


def edge(at: float, phase: str, edge: str) -> RunEvent:
    return RunEvent(
        step=0, kind="phase", at=at, source="trainer", detail={"phase": phase, "edge": edge}
    )


def stay(begin: float, end: float, phase: str = "eval") -> list[RunEvent]:
    return [edge(begin, phase, "begin"), edge(end, phase, "end")]


def test_the_longest_stay_counts_of_this_phase_alone() -> None:
    events = [*stay(0, 10), *stay(20, 90, "checkpoint"), *stay(100, 130), *stay(200, 205)]

    assert longest_s(events, Phase.EVAL) == 30.0


def test_a_stay_under_a_name_of_the_programs_own_counts_as_idle() -> None:
    events = [*stay(0, 40, "validation"), *stay(50, 60)]

    assert longest_s(events, Phase.IDLE) == 40.0


def test_a_phase_that_never_ended_is_not_known() -> None:
    assert longest_s([], Phase.EVAL) is None
    assert longest_s([edge(0, "eval", "begin")], Phase.EVAL) is None


def test_an_end_whose_begin_was_lost_says_nothing() -> None:
    assert longest_s([edge(50, "eval", "end"), *stay(60, 62)], Phase.EVAL) == 2.0


def test_a_life_that_broke_off_in_a_phase_is_not_counted_to_the_next_one() -> None:
    assert longest_s([edge(0, "eval", "begin"), *stay(5000, 5001)], Phase.EVAL) == 1.0


def test_a_clock_that_was_set_back_makes_no_stay() -> None:
    assert longest_s(stay(100, 40), Phase.EVAL) == 0.0
