"""Long lists, told part by part: what is shown now, and where the rest begins."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def part_of(
    found: Sequence[T], limit: int, place: Callable[[T], object]
) -> tuple[Sequence[T], str | None]:
    """The first `limit` of what was asked for with one more, and the token of what follows them:
    the place of the last one shown. None: there is no more."""
    shown = found[:limit]
    return shown, str(place(shown[-1])) if len(found) > limit else None
