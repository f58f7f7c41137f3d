"""Attempts and segments, told from steps alone."""

from runwatch_server.importing.arranging import Stretch, arrange
from runwatch_server.importing.run_log import Entry


def entry(step: int | None, **values: float) -> Entry:
    return Entry("line", step, None, values or {"loss": 1.0})


def lived(*entries: Entry) -> list[tuple[int, int, list[int]]]:
    """Attempt, segment and steps of each stretch."""

    def told(stretch: Stretch) -> tuple[int, int, list[int]]:
        return stretch.attempt, stretch.segment, [row.step for row in stretch.rows]

    return [told(stretch) for stretch in arrange(list(entries)).stretches]


def test_a_step_that_goes_back_within_the_run_begins_a_segment() -> None:
    assert lived(*map(entry, [0, 1, 2, 3, 2, 3])) == [(1, 0, [0, 1, 2, 3]), (1, 1, [2, 3])]


def test_a_step_that_goes_back_to_the_beginning_begins_an_attempt() -> None:
    assert lived(*map(entry, [0, 1, 2, 0, 1, 2, 1])) == [
        (1, 0, [0, 1, 2]),
        (2, 0, [0, 1, 2]),
        (2, 1, [1]),
    ]


def test_a_series_that_comes_late_is_put_into_its_place() -> None:
    entries = [entry(0), entry(1), entry(2), entry(1, val_loss=2.0), entry(3)]

    assert lived(*entries) == [(1, 0, [0, 1, 2, 3])]


def test_a_step_told_twice_with_the_same_words_is_one_row() -> None:
    nan = float("nan")

    assert lived(entry(0, loss=nan), entry(0, loss=nan), entry(1)) == [(1, 0, [0, 1])]


def test_a_step_told_twice_with_other_numbers_stays_two_rows() -> None:
    assert lived(entry(5, loss=1.0), entry(5, loss=2.0)) == [(1, 0, [5, 5])]


def test_a_log_with_the_newest_row_first_is_read_from_its_end() -> None:
    assert lived(*map(entry, [3, 2, 1, 0])) == [(1, 0, [0, 1, 2, 3])]


def test_a_row_without_a_step_belongs_to_the_one_before() -> None:
    assert lived(entry(None, lr=1.0), entry(4), entry(None, lr=1.0)) == [(1, 0, [4])]
