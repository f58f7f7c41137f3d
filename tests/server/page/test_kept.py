"""How long what of a run is kept, as its page says it."""

import math

from runwatch_server.page.kept_api import KeptPart, parts_of
from runwatch_server.retention.ages import Ages

DAY_S = 86_400.0


def test_what_is_kept_for_ever_has_no_end() -> None:
    frames, evidence, rollups = parts_of(Ages(30, 0, 0), ended_at=0.0)

    assert frames == KeptPart("Frames, histograms", 30, until=30 * DAY_S)
    assert evidence.is_for_ever
    assert evidence.until is None
    assert rollups.is_for_ever
    assert rollups.until is None


def test_evidence_is_said_to_stay_as_long_as_the_frames_that_it_is_part_of() -> None:
    _, evidence, rollups = parts_of(Ages(30, 1, 365), ended_at=0.0)

    assert (evidence.days, rollups.days) == (30, 365)


def test_of_a_run_that_goes_on_nobody_knows_until_when() -> None:
    assert [part.until for part in parts_of(Ages(30, 60, 90), ended_at=None)] == [None] * 3
    assert not any(math.isinf(part.days) for part in parts_of(Ages(30, 60, 90), ended_at=None))
