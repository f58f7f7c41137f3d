"""What events say of what a metric only counts: which layers, or what is not watched.

An event comes before the row that counts it, and the alert may fire some rows later.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from runwatch.omissions import MAX_LAYERS
from runwatch.rules.episodes import Culprits
from runwatch.rules.observations import WAITS, Named, Rows

NamedMemory = tuple[int, tuple[Named, ...]]
"""The attempt, and what was told in it."""

_MOST_TOLD: Final = 16
"""Events that are remembered. A hook tells of layers again only where there are more of them."""
_MOST_SHOWN: Final = 2


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
        first = int(rows.steps[0])
        if any(one.step == WAITS for one in self.told):
            self.told = tuple(
                replace(one, step=first) if one.step == WAITS else one for one in self.told
            )
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
    """What the metrics of a rule count at a step: on each topic the newest event, if it names
    layers. What is a sentence happened at its step, and is said of it alone."""
    known = [one for one in told if one.metric in series and one.step <= step]
    newest = {(one.metric, one.topic): one for one in known if one.layers or one.step == step}
    layers = tuple(name for one in newest.values() for name in one.layers)
    first = layers[0] if layers else None
    return Culprits(
        first=first,
        worst=first,
        layers=layers[:MAX_LAYERS],
        num_layers=sum(one.num_layers for one in newest.values()),
        named=_in_words([one.words for one in newest.values()]),
    )


def _in_words(words: list[str]) -> str:
    """In parentheses, with the blank before them; empty if there are none."""
    num_more = len(words) - _MOST_SHOWN
    more = f"; and {num_more} more" if num_more > 0 else ""
    return f" ({'; '.join(words[:_MOST_SHOWN])}{more})" if words else ""
