"""What a new silence would hold back: tells of a label that no alert has, and of alerts it matches.

A mistyped label is not merely without effect. An alert has an empty value for it, so that a matcher
for `*`, or a negated one, holds back everything.
"""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from runwatch.rules.names import nearest
from runwatch_server.errors import UnprocessableError
from runwatch_server.notify.cases import Case, label_name, labels_of
from runwatch_server.notify.notice_queries import list_standing
from runwatch_server.notify.silences import Matcher, Silence
from runwatch_server.per_run_tasks import PerRunTasks

LABELS: Final = (
    *("alertname", "rule", "severity", "watchdog", "project", "run_id", "run"),
    *("layer_group", "rank"),
)
"""Labels of alerts, whichever rule they are of; not every alert has the last two."""
_LONGEST: Final = 256
"""Most characters of a label that are repeated."""


async def list_open(connection: AsyncConnection, now: float) -> list[Case]:
    """The alerts that people were notified of, or would be without silences, and that go on."""
    found = await list_standing(connection, PerRunTasks("matching silences with it"), since=now)
    return [case for case in found if not case.is_resolved]


def check_labels(
    matchers: Sequence[Matcher],
    *,
    of_rules: Collection[str],
    cases: Sequence[Case],
    watchdog: str,
) -> None:
    """Raises UnprocessableError for a label that neither rules nor open alerts have."""
    known = {*LABELS, *map(label_name, of_rules)}
    known.update(*(labels_of(case, watchdog) for case in cases))
    for place, matcher in enumerate(matchers):
        if matcher.name not in known:
            name = matcher.name[:_LONGEST]
            raise UnprocessableError(
                "unknown_label",
                f"matchers[{place}].name: found {name!r}{nearest(name, known)}, "
                f"wanted a label of alerts or rules: {', '.join(sorted(known))}",
            )


def count_matching(silence: Silence, cases: Sequence[Case], watchdog: str) -> int:
    return sum(silence.matches(labels_of(case, watchdog)) for case in cases)
