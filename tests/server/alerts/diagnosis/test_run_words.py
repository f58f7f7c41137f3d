"""Events of a run in words, as a card and a message say them."""

import pytest

from runwatch_server.alerts.diagnosis.run_words import words_of_event
from runwatch_server.alerts.records import RunEvent


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({"first_seq": 2, "num_frames": 3}, "3 frames are missing"),
        ({"lost_rows": 7, "reason": "spool_full"}, "7 rows were lost (spool full)"),
        ({"rows_without_stats": 2}, "2 rows came without their layers' numbers"),
    ],
)
def test_a_gap_is_told_by_who_found_it(detail: dict[str, object], words: str) -> None:
    event = RunEvent(step=5, kind="gap", at=0.0, source="trainer", detail=detail)

    assert words_of_event(event) == words
