"""A tensor put together from the parts that ranks have saved."""

import torch

from runwatch_hooks.state.sharded import Scattered, place_of


def test_it_lies_in_the_hosts_memory_whatever_device_is_the_programs_default() -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    scattered = Scattered(whole.shape, whole.dtype)
    place = place_of(whole)
    assert place is not None
    with torch.device("meta"):
        scattered.add(place, whole)
        found = scattered.part_for(None)

    assert torch.equal(found, whole)
