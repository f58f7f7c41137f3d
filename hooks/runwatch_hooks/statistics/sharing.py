"""How a row's layers are split over ranks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharing:
    """For each layer, which ranks hold parts of it."""

    owners: tuple[tuple[int, ...], ...]
    """The ranks whose parts make up the whole tensor, one of each set of replicas; (0,) for a
    tensor that is not sharded."""
    sizes: tuple[int, ...]
    """Number of elements of each layer on this rank."""
