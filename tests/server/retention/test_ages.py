"""What of a run has had its time, by the ages in force."""

import pytest

from runwatch_server.retention.ages import Ages, Due, due_of

AGES = Ages(raw_days=30, evidence_days=60, rollup_days=365)


@pytest.mark.parametrize(
    ("age_days", "due"),
    [
        (30.0, Due()),
        (30.1, Due(raw=True)),
        (61.0, Due(raw=True, evidence=True)),
        (366.0, Due(raw=True, evidence=True, rollups=True)),
    ],
)
def test_each_part_goes_after_its_own_time(age_days: float, due: Due) -> None:
    assert due_of(AGES, age_days=age_days, is_pinned=False) == due


def test_nothing_of_a_pinned_run_goes() -> None:
    assert due_of(AGES, age_days=1e5, is_pinned=True) == Due()


def test_nought_is_for_ever() -> None:
    assert due_of(Ages(0, 0, 0), age_days=1e9, is_pinned=False) == Due()


def test_evidence_and_rollups_go_no_sooner_than_frames() -> None:
    ages = Ages(raw_days=30, evidence_days=1, rollup_days=1)

    assert due_of(ages, age_days=20, is_pinned=False) == Due()
    assert due_of(ages, age_days=31, is_pinned=False) == Due(True, True, True)


def test_what_is_not_said_is_as_below() -> None:
    assert Ages(raw_days=7).over(Ages(evidence_days=0)).over(AGES) == Ages(7, 0, 365)
