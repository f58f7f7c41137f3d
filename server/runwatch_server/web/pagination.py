"""Pages of long lists: the items of this page, and the token of the next."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
V = TypeVar("V")

MOST_BYTES: Final = 4 * 2**20
"""Of the items in an answer, as JSON. The last of them may go beyond it."""


def part_of(
    found: Sequence[T], limit: int, place: Callable[[T], object]
) -> tuple[Sequence[T], str | None]:
    """The first `limit` items, and the token of the next page; None if this was the last.

    `found` is to be queried with one item more than the limit. The token is the place of the last
    item shown.
    """
    shown = found[:limit]
    return shown, str(place(shown[-1])) if len(found) > len(shown) else None


def answer_of(
    found: Sequence[T], limit: int, place: Callable[[T], object], view: Callable[[T], V]
) -> tuple[list[V], str | None]:
    """The same as views, and no more of them than fit into MOST_BYTES, but at least one."""
    shown: list[V] = []
    room = MOST_BYTES
    for item in found[:limit]:
        shown.append(view(item))
        room -= len(msgspec.json.encode(shown[-1]))
        if room <= 0:
            break
    return shown, part_of(found, len(shown), place)[1]
