"""Whether two sets of optimizers step some of the same layers."""

from collections.abc import Mapping, Sequence


def have_layers_in_common(
    some: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> bool:
    """Both contain the layers' slots of each optimizer, by the optimizer's identity."""
    if any(others.get(one) == slots for one, slots in some.items()):
        return True  # the same optimizer stepped again: the usual case, and quick to find
    layers = {slot for slots in some.values() for slot in slots}
    return not all(layers.isdisjoint(slots) for slots in others.values())
