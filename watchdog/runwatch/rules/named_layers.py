"""Layers that events name, for rules that judge a metric which only counts them.

An event comes before the row that counts its layers, and the alert fires some rows later.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from runwatch.omissions import MAX_LAYERS, in_words
from runwatch.rules.episodes import Culprits
from runwatch.rules.observations import Named, Rows

NamedMemory = tuple[int, tuple[Named, ...]]
"""The attempt, and what was told in it."""

_MOST_TOLD = 16
"""Events that are remembered. A hook tells of layers again only where there are more of them."""


@dataclass(slots=True)
class NamedLayers:
    """What the events of the present attempt have named."""

    attempt: int = 0
    told: tuple[Named, ...] = ()

    def note(self, rows: Rows) -> None:
        """Remember what a frame tells, with rows or without, and forget another attempt."""
        if rows.attempt != self.attempt:
            self.attempt, self.told = rows.attempt, ()
        if rows.named:
            self.told = (*self.told, *rows.named)[-_MOST_TOLD:]

    def put_on(self, rows: Rows) -> Rows:
        """The rows with all that is known by now."""
        self.note(rows)
        return replace(rows, named=self.told) if self.told else rows

    def rewind(self, step: int) -> None:
        """After a rollback to before `step`: the hook does not tell again what it has told."""
        self.told = tuple(replace(one, step=min(one.step, step)) for one in self.told)

    def memory(self) -> NamedMemory:
        return self.attempt, self.told

    @classmethod
    def of(cls, memory: NamedMemory) -> "NamedLayers":
        return cls(*memory)


def culprits_named(told: Collection[Named], series: Collection[str], step: int) -> Culprits:
    """The layers that the metrics of a rule count at a step: of each reason the newest event."""
    newest = {
        (one.omission.metric, one.omission.why): one.omission
        for one in told
        if one.omission.metric in series and one.step <= step
    }
    layers = tuple(name for one in newest.values() for name in one.layers)
    if not layers:
        return Culprits()
    return Culprits(
        first=layers[0],
        worst=layers[0],
        layers=layers[:MAX_LAYERS],
        num_layers=sum(one.num_layers for one in newest.values()),
        named=in_words(newest.values()),
    )
