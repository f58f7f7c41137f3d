"""Of tables that are kept, those that were used last."""

import torch

from runwatch_hooks.statistics.readback import Recent, bytes_of


def test_what_was_used_longest_ago_makes_room() -> None:
    kept: Recent[str, int] = Recent(room=10)
    kept.put("a", 1, 4)
    kept.put("b", 2, 4)
    kept.get("a")
    kept.put("c", 3, 4)

    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)
    assert (len(kept), kept.taken) == (2, 8)
    assert kept.values() == [1, 3]


def test_the_newest_stays_however_large_it_is() -> None:
    kept: Recent[str, int] = Recent(room=10)
    kept.put("a", 1, 4)
    kept.put("b", 2, 99)

    assert (kept.get("a"), kept.get("b"), kept.taken) == (None, 2, 99)


def test_a_device_gives_memory_in_blocks() -> None:
    assert bytes_of([torch.zeros(1), torch.zeros(129), torch.zeros(0)]) == 512 + 1024
