"""Pages of long lists: the items of this page, and the token of the next."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def part_of(
    found: Sequence[T], limit: int, place: Callable[[T], object]
) -> tuple[Sequence[T], str | None]:
    """The first `limit` items, and the token of the next page; None if this was the last.

    `found` is to be queried with one item more than the limit. The token is the place of the last
    item shown.
    """
    shown = found[:limit]
    return shown, str(place(shown[-1])) if len(found) > limit else None
