"""What several ranks say alike is told once."""

from typing import Any

import pytest
from tests.server.notify.factories import a_case

from runwatch_server.alerts.records import AlertRecord
from runwatch_server.page.alert_groups import grouped, ranks_in_words


def an_alert(rank: int = 0, **facts: Any) -> AlertRecord:
    labels = {"rank": str(rank)} if rank else {}
    return a_case(rank=rank, labels=labels, **facts).alert


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], ""),
        ([0], ""),
        ([7], "rank 7"),
        ([3, 1], "ranks 1, 3"),
        ([0, 1, 2, 3, 5, 7, 8], "ranks 0 to 3, 5, 7 to 8"),
    ],
)
def test_ranks_are_told_by_their_spans(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words


def test_an_alert_of_every_rank_is_one_line_under_the_earliest() -> None:
    alerts = [an_alert(rank, onset_step=100 if rank == 2 else 101) for rank in range(4)]

    (group,) = grouped(alerts)

    assert (group.alert.rank, group.ranks, group.size) == (2, "ranks 0 to 3", 4)


def test_what_differs_in_more_than_its_rank_stays_apart() -> None:
    alerts = [
        an_alert(),
        an_alert(rank=1, rule="LossSpike"),
        an_alert(rank=1, attempt=2),
        an_alert(rank=1, acked_at=5.0),
    ]

    assert [group.size for group in grouped(alerts)] == [1, 1, 1, 1]


def test_two_alerts_of_one_rank_are_two_lines() -> None:
    assert [group.size for group in grouped([an_alert(), an_alert(), an_alert(rank=1)])] == [2, 1]
