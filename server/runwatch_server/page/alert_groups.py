"""Groups alerts that say the same about several ranks, so that they are shown once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runwatch_server.alerts.records import AlertRecord


@dataclass(frozen=True, slots=True)
class AlertGroup:
    alert: AlertRecord
    """The alert that is shown: the earliest, and among those the one of the lowest rank."""
    ranks: str
    """The ranks in words; empty if it is rank 0 alone, which stands for the run."""
    size: int


def grouped(alerts: Sequence[AlertRecord]) -> list[AlertGroup]:
    """Groups in the order of the first alert of each."""
    groups: dict[object, list[AlertRecord]] = {}
    met: Counter[object] = Counter()
    for alert in alerts:
        likeness = _likeness(alert)
        met[likeness, alert.rank] += 1  # two of one rank are different
        groups.setdefault((likeness, met[likeness, alert.rank]), []).append(alert)
    return [
        AlertGroup(
            min(group, key=lambda one: (one.onset_step, one.rank)),
            ranks_in_words([one.rank for one in group]),
            len(group),
        )
        for group in groups.values()
    ]


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 7`, `ranks 1, 3`, `ranks 0 to 7`; nothing for rank 0 alone."""
    known = sorted(set(ranks))
    if known in ([], [0]):
        return ""
    spans: list[tuple[int, int]] = []
    for rank in known:
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    words = [f"{first}" if first == last else f"{first} to {last}" for first, last in spans]
    return f"rank{'s' if len(known) > 1 else ''} {', '.join(words)}"


def _likeness(alert: AlertRecord) -> object:
    """What all alerts of a group have in common."""
    labels = {name: value for name, value in alert.labels.items() if name != "rank"}
    return (
        alert.rule,
        alert.severity,
        alert.state,
        alert.acked_at is None,
        alert.attempt,
        alert.segment,
        frozenset(labels.items()),
    )
