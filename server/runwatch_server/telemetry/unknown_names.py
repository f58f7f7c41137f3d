"""Errors for a name, attempt or rank that a run does not have; they say what it has."""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from runwatch.rules.names import nearest
from runwatch_server.errors import NotFoundError
from runwatch_server.runs.queries import Attempt

_MOST_NAMED: Final = 12
_MOST_COMPARED: Final = 2000
"""Most names compared for a hint: each takes some microseconds, and models may have many layers."""
_LONGEST: Final = 256
"""Most characters of the name that are repeated; a longer one is similar to none of the run's."""


def unknown_name(code: str, what: str, name: str, known: Collection[str]) -> NotFoundError:
    """`what` is the kind of name; `known` are the run's own names, in any order."""
    is_short = len(name) <= _LONGEST
    hint = nearest(name, islice(known, _MOST_COMPARED)) if is_short else ""
    return NotFoundError(code, f"The run has no {what} {name[:_LONGEST]!r}{hint}. {_those(known)}")


def check_place(attempts: Sequence[Attempt], attempt: int | None, rank: int) -> None:
    """Raises NotFoundError for an attempt never opened, and for a rank that no attempt has.

    A rank that exists but has sent nothing yet is no error: it just has no values.
    """
    numbers = [one.attempt for one in attempts]
    if attempt is not None and attempt not in numbers:
        known = f"It has {_from_to(numbers)}." if numbers else "It has none yet."
        raise NotFoundError("attempt_not_found", f"The run has no attempt {attempt}. {known}")
    ranks = range(max((one.world_size for one in attempts), default=1))
    if rank not in ranks:
        raise NotFoundError(
            "rank_not_found", f"The run has no rank {rank}. It has {_from_to(ranks)}."
        )


def _from_to(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _those(known: Collection[str]) -> str:
    if not known:
        return "It has none yet."
    more = len(known) - _MOST_NAMED
    rest = f" and {more} more, as /metrics of the run lists them" if more > 0 else ""
    return f"It has {', '.join(islice(known, _MOST_NAMED))}{rest}."
