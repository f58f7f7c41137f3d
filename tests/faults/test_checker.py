"""The checker finds each kind of breach: a checker that lets everything pass proves nothing."""

from pathlib import Path

import pytest
from tests.faults.checker import violations
from tests.faults.history import (
    Acked,
    Alerts,
    Applied,
    Broken,
    Ended,
    Fact,
    Fired,
    Grew,
    History,
    Logged,
    Named,
    Notified,
    Ordered,
    Sent,
    Stored,
    Waited,
)

SOUND: tuple[Fact, ...] = (
    Sent("run/1/0", 1, 77),
    Sent("run/1/0", 1, 77),
    Acked("run/1/0", 1),
    Sent("run/1/0", 2, 78),  # its answer was lost, and so it may be there or not
    Stored("run/1/0", 1, 77),
    Sent("run/1/0", 9, 5),
    Stored("run/1/0", 9, 6),  # a bit has turned
    Broken("run/1/0", 9),
    Named("run/1/0", 9),
    Alerts("run", live="NonFinite", replayed="NonFinite"),
    Fired("NonFinite", over=True),
    Notified("NonFinite", over=True),
    Notified("NonFinite", over=True),
    Ordered("one"),
    Applied("one", 0),
    Applied("one", 1),
    Ended("one", "applied"),
    Waited(0.001, 0.005),
    Grew("memory", 1, 2),
    Logged("service.log", 10, 0),
)


def judged(folder: Path, *facts: Fact) -> list[str]:
    history = History(folder / "history.jsonl")
    for fact in facts:
        history.note(fact)
    return violations(history)


def test_a_sound_history_breaks_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, *SOUND) == []


@pytest.mark.parametrize(
    ("added", "broken"),
    [
        (Acked("run/1/0", 3), "acknowledged_is_stored_once"),
        (Stored("run/1/0", 1, 77), "acknowledged_is_stored_once"),
        (Stored("run/1/0", 2, 1), "stored_was_sent"),
        (Broken("run/1/0", 1), "what_is_broken_is_named"),
        (Named("run/1/0", 1), "what_is_broken_is_named"),
        (Alerts("run", live="", replayed="NonFinite"), "alerts_are_those_of_a_replay"),
        (Fired("NonFinite", over=False), "what_fires_is_told"),
        (Applied("one", 1), "commands_are_applied_once_and_end"),
        (Ordered("two"), "commands_are_applied_once_and_end"),
        (Ended("one", "accepted"), "commands_are_applied_once_and_end"),
        (Waited(0.006, 0.005), "no_step_is_held_up"),
        (Waited(3600.0, 0.005), "no_step_is_held_up"),
        (Grew("memory", 3, 2), "memory_and_disk_are_bounded"),
        (Logged("service.log", 10, 1), "no_secret_is_logged"),
    ],
)
def test_each_breach_is_found(tmp_path: Path, added: Fact, broken: str) -> None:
    (found,) = judged(tmp_path, *SOUND, added)

    assert found.startswith(f"{broken}: ")


def test_a_line_that_is_still_being_written_is_no_fact_yet(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.note(Acked("run/1/0", 1))
    with history.path.open("ab") as file:
        file.write(b'{"type":"acked","stre')

    assert list(history.facts()) == [Acked("run/1/0", 1)]
