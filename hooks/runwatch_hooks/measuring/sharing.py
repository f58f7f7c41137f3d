"""How a row's layers lie on several ranks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sharing:
    """Whose parts a row's stats are to be joined of, layer by layer."""

    owners: tuple[tuple[int, ...], ...]
    """The ranks whose parts make up one whole tensor; of replicas, one. (0,) for a plain one."""
    sizes: tuple[int, ...]
    """Elements of each layer that lie on this rank."""
