"""Adds the short form of diagnosis cards to cases, examining each alert only when needed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from runwatch.vocabulary import AlertId
from runwatch_server.alerts.diagnosis.card import short_of
from runwatch_server.alerts.diagnosis.findings import SignFinder
from runwatch_server.notify.cases import Case

_MOST_KEPT: Final = 8192
"""More than stand at a time: Alertmanager is told of all of them every minute, in the same order,
so with fewer kept each one would be examined again."""


@dataclass(slots=True)
class Explainer:
    """Examines an alert once for each of its states, since a firing one is sent again every
    minute."""

    sign_finder: SignFinder
    _known: dict[tuple[AlertId, str, int], str] = field(
        default_factory=dict[tuple[AlertId, str, int], str]
    )

    async def explain(self, cases: Sequence[Case]) -> list[Case]:
        return [replace(case, card=await self._card(case)) for case in cases]

    async def _card(self, case: Case) -> str:
        alert = case.alert
        key = (alert.id, alert.state.value, alert.last_step)
        if key not in self._known:
            if len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            findings = await self.sign_finder.find(alert, num_similar=0)
            self._known[key] = short_of(alert, findings)
        return self._known[key]
