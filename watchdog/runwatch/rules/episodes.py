"""What an alert is about: who is failing, and in which attempt and segment it began."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Culprits:
    """Who is failing, as an alert names them."""

    first: str | None = None
    worst: str | None = None
    layers: tuple[str, ...] = ()
    num_layers: int = 0
    origin: str = ""
    """Where it began, in words, where the name of a layer does not say it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """What is remembered of an alert beside its state."""

    attempt: int
    segment: int
    """Of the onset."""
    culprits: Culprits
    value: float
