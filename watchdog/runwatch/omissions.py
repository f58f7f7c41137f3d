"""What a hook tells of layers that the program leaves out: which they are, and why, if it is known.

It travels as an event of kind `untrained`, beside a metric that counts the layers. A service that
knows no more than the event's words stores these, and a hook that sends no more is understood.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from runwatch.frames import Event, Scalar
from runwatch.layouts import MAX_NAME_BYTES

OMISSION: Final = "untrained"
"""The event's kind."""
MAX_LAYERS: Final = 16
"""Layers that an event names."""
_SHOWN: Final = 4
"""Layers that a text names."""


class Why(StrEnum):
    """What the hook knows to be the reason."""

    NO_GRADIENT = "no_gradient"
    NO_OPTIMIZER = "no_optimizer"
    NOT_REDUCED = "not_reduced"
    """A wrapper that should reduce gradients over ranks holds the layers, and they differ."""
    UNKNOWN = ""


_WORDS: Final = {
    Why.NO_GRADIENT: ": no gradient reaches them",
    Why.NO_OPTIMIZER: ": no optimizer steps them",
    Why.NOT_REDUCED: ": their gradients are not reduced",
    Why.UNKNOWN: "",
}


class Omission(msgspec.Struct, frozen=True):
    """Some layers that are left out."""

    what: str
    """A sentence for the timeline and the trainer's log; it names some of the layers, too."""
    metric: str
    """The metric that counts them."""
    layers: tuple[str, ...]
    """At most MAX_LAYERS."""
    num_layers: int
    why: Why = Why.UNKNOWN

    @classmethod
    def of(
        cls, words: str, names: Sequence[str], *, metric: str, why: Why = Why.UNKNOWN
    ) -> "Omission":
        """Of all such layers; `words` come before their names."""
        what = f"{words}: {some_of(names)}"
        return cls(what, metric, tuple(names[:MAX_LAYERS]), len(names), why)

    def to_detail(self) -> dict[str, Scalar | list[str]]:
        """As the detail of an event."""
        return {
            "what": self.what,
            "metric": self.metric,
            "layers": list(self.layers),
            "num_layers": self.num_layers,
            "why": self.why.value,
        }

    def to_event(self, step: int, at: float) -> Event:
        """At a step; `at` is in Unix seconds."""
        return Event(step, OMISSION, at, self.to_detail())

    @classmethod
    def of_detail(cls, detail: Mapping[str, object]) -> "Omission | None":
        """The omission that an event tells, as short as ours are; None if it is not one that we
        understand, or if it names no layer."""
        try:
            told = msgspec.convert(detail, cls)
        except msgspec.ValidationError:
            return None
        layers = tuple(name[:MAX_NAME_BYTES] for name in told.layers[:MAX_LAYERS])
        return msgspec.structs.replace(told, layers=layers) if layers else None

    @property
    def words(self) -> str:
        """Such as `head.weight, head.bias: no optimizer steps them`."""
        return some_of(self.layers, self.num_layers) + _WORDS[self.why]


def some_of(names: Sequence[str], num_names: int | None = None) -> str:
    """A text with the first few names, and how many more there are."""
    num_more = (len(names) if num_names is None else num_names) - len(names[:_SHOWN])
    return ", ".join(names[:_SHOWN]) + (f" and {num_more} more" if num_more > 0 else "")
