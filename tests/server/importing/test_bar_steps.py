"""The steps of rows beside a progress bar, as Hugging Face's Trainer prints them."""

from runwatch_server.importing.bar_steps import steps_beside


def bar(done: int, total: int) -> str:
    return f" {100 * done // total}%|##    | {done}/{total} [00:05<00:30, 19.7it/s]"


def test_the_bar_that_is_drawn_after_a_row_has_its_step() -> None:
    lines = [bar(7, 99), "{'loss': 3}", bar(10, 99), bar(18, 99), "{'loss': 2}", bar(20, 99)]

    assert steps_beside([1, 4], lines) == [10, 20]


def test_a_row_that_ends_the_log_has_the_step_of_the_bar_before_it() -> None:
    lines = ["{'loss': 3}", bar(10, 99), bar(19, 99), "{'loss': 2}"]

    assert steps_beside([0, 3], lines) == [10, 19]


def test_the_bar_of_an_evaluation_counts_no_steps() -> None:
    lines = ["{'loss': 3}", bar(10, 99), bar(4, 8), "{'loss': 2}", bar(20, 99), bar(4, 8)]

    assert steps_beside([0, 3], lines) == [10, 20]


def test_rows_that_came_at_once_have_no_step() -> None:
    assert steps_beside([1, 2, 3], [bar(98, 99), "{}", "{}", "{}", bar(99, 99)]) is None


def test_a_bar_that_begins_anew_from_its_end_counts_those_of_an_epoch() -> None:
    lines = ["{'loss': 3}", bar(9, 9), "{'loss': 2}", bar(1, 9), "{'loss': 1}", bar(9, 9)]

    assert steps_beside([0, 2, 4], lines) is None


def test_a_bar_that_falls_back_is_that_of_a_resumed_run() -> None:
    lines = ["{'loss': 3}", bar(50, 99), "{'loss': 2}", bar(40, 99), "{'loss': 1}", bar(60, 99)]

    assert steps_beside([0, 2, 4], lines) == [50, 40, 60]
