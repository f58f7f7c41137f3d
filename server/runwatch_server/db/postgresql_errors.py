"""Classifies errors of PostgreSQL: the work's own fault, worth another attempt, or database
lost."""

from enum import StrEnum
from typing import Final

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from runwatch_server.errors import UnprocessableError

DRIVER_ERRORS: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors that asyncpg raises itself, without the server. The second also comes from a connection
that was interrupted while its last user was in the middle of something."""
_UNDONE: Final = ("40001", "40P01")
"""serialization_failure and deadlock_detected: undone in favour of another transaction."""
_LOST_CLASSES: Final = ("08", "53", "55P03", "57", "58")
"""Connection, resources (a full disk), lock timeout, shutdown, I/O error."""


class Fate(StrEnum):
    """What happens to a transaction in which an error was raised."""

    REFUSED = "refused"
    """Only the work that raised it is undone."""
    UNDONE = "undone"
    """The transaction can be run again."""
    LOST = "lost"
    """The database cannot be reached or cannot write; it may later."""


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
    """The error to report: a value that PostgreSQL cannot hold is the sender's fault."""
    if isinstance(error, SQLAlchemyError) and _is_of_value(error):
        told = UnprocessableError(
            "unstorable_value", f"A value cannot be stored: {_driver_error(error)}"[:500]
        )
        told.__cause__ = error
        return told
    return error


def words_of(error: BaseException) -> str:
    """What the server or the driver says, without what SQLAlchemy puts around it."""
    return str(_driver_error(error))


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's five-character error code; empty if the error has none."""
    state = getattr(_driver_error(error), "sqlstate", None)
    return state if isinstance(state, str) else ""


def _is_of_value(error: BaseException) -> bool:
    """Whether the error is about a value: a number out of range, or a zero byte in a text."""
    return sqlstate(error).startswith("22") or isinstance(_driver_error(error), asyncpg.DataError)


def _was_idle(error: BaseException) -> bool:
    """Whether the server ended a transaction that was idle for too long. It has then received
    nothing that came later, not even a COMMIT."""
    cause = _driver_error(error)
    if isinstance(cause, asyncpg.ConnectionDoesNotExistError) and cause.__cause__ is not None:
        cause = cause.__cause__  # the server's message before it closed the connection
    return isinstance(cause, asyncpg.IdleInTransactionSessionTimeoutError)


def _driver_error(error: BaseException) -> BaseException:
    if not isinstance(error, DBAPIError) or error.orig is None:
        return error
    return error.orig.__cause__ or error.orig
