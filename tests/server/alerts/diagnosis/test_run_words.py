"""Events of a run in words, as a card and a message say them."""

import pytest

from runwatch_server.alerts.diagnosis.run_words import words_of_event
from runwatch_server.alerts.records import RunEvent


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({"first_seq": 2, "num_frames": 3}, "3 frames are missing"),
        ({"lost_rows": 7, "reason": "spool_full"}, "the trainer lost 7 rows (spool full)"),
        (
            {"lost_rows": 1, "lost_events": 2, "reason": "refused"},
            "the trainer lost 1 row and 2 events (refused)",
        ),
        (
            {"lost_rows": 0, "lost_events": 3, "reason": "invalid"},
            "the trainer lost 3 events (invalid)",
        ),
        (
            {"lost_rows": 0, "lost_events": 0, "reason": "spool_damaged"},
            "the trainer lost an unknown number of rows (spool damaged)",
        ),
        ({"rows_without_stats": 2}, "2 rows came without their layers' numbers"),
    ],
)
def test_a_gap_is_told_by_who_found_it(detail: dict[str, object], words: str) -> None:
    event = RunEvent(step=5, kind="gap", at=0.0, source="trainer", detail=detail)

    assert words_of_event(event) == words


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({"what": "the norms decay: a.weight"}, "the norms decay: a.weight"),
        ({"layers": ["a.weight"]}, "weight decay"),
    ],
)
def test_a_kind_of_event_that_the_service_does_not_know_needs_no_words_of_its_own(
    detail: dict[str, object], words: str
) -> None:
    event = RunEvent(step=5, kind="weight_decay", at=0.0, source="trainer", detail=detail)

    assert words_of_event(event) == words
