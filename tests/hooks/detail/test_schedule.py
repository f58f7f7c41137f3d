"""At which steps what is taken."""

from runwatch_hooks.detail import Schedule


def taken(schedule: Schedule, first: int, last: int) -> tuple[list[int], list[int]]:
    """The steps of histograms and those of activations, among steps that follow one another."""
    due = {step: schedule.next(step) for step in range(first, last)}
    return (
        [step for step, one in due.items() if one.histograms],
        [step for step, one in due.items() if one.activations],
    )


def test_nothing_is_taken_unasked() -> None:
    assert taken(Schedule(None, None), 0, 100) == ([], [])


def test_each_has_its_own_interval() -> None:
    assert taken(Schedule(4, 6), 0, 13) == ([0, 4, 8, 12], [6, 12])


def test_activations_wait_until_a_model_has_been_traced() -> None:
    assert taken(Schedule(None, 1), 10, 15) == ([], [12, 13, 14])


def test_a_command_asks_for_all_of_the_next_steps() -> None:
    schedule = Schedule(None, None)
    taken(schedule, 0, 5)
    schedule.ask(5, 3)

    assert taken(schedule, 5, 10) == ([5, 6, 7], [5, 6, 7])


def test_after_a_rollback_it_is_not_asked_again() -> None:
    schedule = Schedule(None, None)
    taken(schedule, 0, 5)
    schedule.ask(5, 10)
    taken(schedule, 5, 8)
    schedule.forget(2)

    assert taken(schedule, 2, 20) == ([], [])


def test_a_second_command_does_not_shorten_the_first() -> None:
    schedule = Schedule(None, None)
    taken(schedule, 0, 5)
    schedule.ask(5, 4)
    schedule.ask(6, 1)

    assert taken(schedule, 6, 12) == ([6, 7, 8], [6, 7, 8])
