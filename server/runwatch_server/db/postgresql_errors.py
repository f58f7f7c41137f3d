"""What an error of PostgreSQL means for those who wait: theirs, tried again, or not for now."""

from enum import StrEnum
from typing import Final

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from runwatch_server.errors import UnprocessableError

DRIVER_ERRORS: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What asyncpg raises of itself and not of the server. The second, too, is of a connection that
was cut: whoever used it last was in the middle of something."""
_UNDONE: Final = ("40001", "40P01")
"""serialization_failure, deadlock_detected: undone for another transaction's sake."""
_LOST_CLASSES: Final = ("08", "53", "55P03", "57", "58")
"""Connection, resources (a full disk), lock timeout, shutdown, I/O error."""


class Fate(StrEnum):
    """What becomes of a transaction in which an error was raised."""

    REFUSED = "refused"
    """Only the work that raised it is undone."""
    UNDONE = "undone"
    """The transaction can be run again."""
    LOST = "lost"
    """The database cannot be reached, or cannot write: later, perhaps."""


def fate_of(error: BaseException) -> Fate:
    state = sqlstate(error)
    if state in _UNDONE or _was_idle(error):
        return Fate.UNDONE
    if state.startswith(_LOST_CLASSES):
        return Fate.LOST
    if isinstance(error, DBAPIError):
        return Fate.LOST if error.connection_invalidated else Fate.REFUSED
    if isinstance(error, OSError | PoolTimeoutError):
        return Fate.LOST
    if isinstance(error, DRIVER_ERRORS) and not isinstance(error, asyncpg.DataError):
        return Fate.LOST
    return Fate.REFUSED


def answer_of(error: Exception) -> Exception:
    """The error as it is told: a value that PostgreSQL cannot hold is the sender's fault."""
    if isinstance(error, SQLAlchemyError) and _is_of_value(error):
        told = UnprocessableError(
            "unstorable_value", f"A value cannot be stored: {_driver_error(error)}"[:500]
        )
        told.__cause__ = error
        return told
    return error


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's five letters; empty where the error has none."""
    state = getattr(_driver_error(error), "sqlstate", None)
    return state if isinstance(state, str) else ""


def _is_of_value(error: BaseException) -> bool:
    """A number out of range, a zero byte in a text."""
    return sqlstate(error).startswith("22") or isinstance(_driver_error(error), asyncpg.DataError)


def _was_idle(error: BaseException) -> bool:
    """The server gave up a transaction in which it was told nothing for too long: whatever came
    after that, a COMMIT too, it has not heard."""
    cause = _driver_error(error)
    if isinstance(cause, asyncpg.ConnectionDoesNotExistError) and cause.__cause__ is not None:
        cause = cause.__cause__  # what the server had said before it closed the connection
    return isinstance(cause, asyncpg.IdleInTransactionSessionTimeoutError)


def _driver_error(error: BaseException) -> BaseException:
    if not isinstance(error, DBAPIError) or error.orig is None:
        return error
    return error.orig.__cause__ or error.orig
