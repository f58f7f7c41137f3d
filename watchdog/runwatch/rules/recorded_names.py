"""Finds the series that rules read under the names that a program gives them.

A loss that is posted as `training_loss` is judged as `loss`, as it is in a log that is imported.
Only what is judged is renamed; what is stored keeps the names of the program. A reward, or two
losses that play against each other, tell here too that a loss has no level (`alternating`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from runwatch.aliases import resolve
from runwatch.moving_targets import signs_of
from runwatch.rules.observations import Rows

_ALTERNATING: Final = "alternating"

NamesMemory = tuple[tuple[str, ...], Mapping[str, str]]
"""The names that were seen, and theirs by ours."""


@dataclass(slots=True)
class RecordedNames:
    """The names of one attempt, of which each frame may hold others."""

    seen: dict[str, None] = field(default_factory=dict[str, None])
    chosen: dict[str, str] = field(default_factory=dict[str, str])
    """The program's name of each series. A choice is kept, since two curves are no series; only
    the series' own name replaces it."""
    _is_moving: bool = False
    _latest: tuple[str, ...] = ()
    _ours: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ours by theirs, among the names of the latest rows."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "RecordedNames":
        """Those of a stored run."""
        found = cls()
        found._note(tuple(names))
        return found

    def name_of(self, theirs: str) -> str:
        """Our name of one of the latest names, or else that name."""
        return self._ours.get(theirs, theirs)

    def put_on(self, rows: Rows) -> Rows:
        """The rows under our names, with `alternating` where the names tell of a moving target."""
        if rows.metric_names != self._latest:
            self._note(rows.metric_names)
        if self._ours:
            names = tuple(self._ours.get(name, name) for name in rows.metric_names)
            known_as = {ours: theirs for theirs, ours in self._ours.items()}
            rows = replace(rows, metric_names=names, known_as=known_as)
        if not self._is_moving:
            return rows
        ones = np.ones((rows.num_rows, 1))
        return replace(
            rows,
            metric_names=(*rows.metric_names, _ALTERNATING),
            metrics=np.concatenate([rows.metrics, ones], axis=1),
        )

    def clear(self) -> None:
        """After the end of the attempt."""
        self.recall(((), {}))

    def memory(self) -> NamesMemory:
        return tuple(self.seen), dict(self.chosen)

    def recall(self, memory: NamesMemory) -> None:
        """Take back what `memory` gave."""
        seen, chosen = memory
        self.seen, self.chosen = dict.fromkeys(seen), dict(chosen)
        self._latest = ()
        self._find_signs()

    def _note(self, names: tuple[str, ...]) -> None:
        if not self.seen.keys() >= set(names):
            self.seen.update(dict.fromkeys(names))
            self._choose()
            self._find_signs()
        self._latest = names
        self._ours = {
            theirs: ours
            for ours, theirs in self.chosen.items()
            if theirs != ours and theirs in names
        }

    def _choose(self) -> None:
        for ours, theirs in resolve(self.seen).items():
            if theirs == ours:
                self.chosen[ours] = theirs
            else:
                self.chosen.setdefault(ours, theirs)

    def _find_signs(self) -> None:
        """A run that records `alternating` itself knows better."""
        self._is_moving = _ALTERNATING not in self.seen and bool(signs_of(self.seen))
