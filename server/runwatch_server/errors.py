"""The errors that refuse a request, and those that keep the service from starting.

RunwatchError
├── ServiceError                refuses a request: carries the HTTP status and a stable code
│   ├── BadRequestError         400
│   ├── UnauthenticatedError    401
│   ├── ForbiddenError          403
│   ├── NotFoundError           404
│   ├── ConflictError           409
│   ├── ChangedMeanwhileError   412
│   ├── TooLargeError           413
│   ├── UnsupportedTypeError    415
│   ├── UnprocessableError      422
│   ├── VersionMissingError     428
│   └── RetryLaterError         with the number of seconds after which to try again
│       ├── RateLimitedError    429
│       ├── TooManyStreamsError 429
│       ├── TooManyBacktestsError 429
│       └── OverloadedError     503
├── SettingsError (ValueError)  a setting that cannot be used
├── DataDirError                the data directory cannot be made or written
├── NoDatabaseError             the data directory does not exist, or holds no database
├── DatabaseUnreachableError    the database server does not answer, or refuses us
├── DatabaseDamagedError        the SQLite file is damaged, or is not a SQLite file
├── BackupError                 a backup could not be made, or cannot be used (db/backup.py)
└── DataDirInUseError           another service has the data directory open
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.errors import RunwatchError


class ServiceError(RunwatchError):
    """A refusal, sent to the client as a problem (RFC 9457)."""

    status = 500
    title = "Internal error"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        """Stable name of the error, for programs to match on."""
        self.detail = detail

    @property
    def headers(self) -> Mapping[str, str]:
        return {}


class BadRequestError(ServiceError):
    status = 400
    title = "Bad request"


class UnauthenticatedError(ServiceError):
    status = 401
    title = "Who are you?"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"WWW-Authenticate": 'Bearer realm="runwatch"'}


class ForbiddenError(ServiceError):
    status = 403
    title = "Not allowed"


class NotFoundError(ServiceError):
    status = 404
    title = "Not found"


class ConflictError(ServiceError):
    status = 409
    title = "Conflict"


class ChangedMeanwhileError(ServiceError):
    status = 412
    title = "Changed meanwhile"


class TooLargeError(ServiceError):
    status = 413
    title = "Too large"


class UnsupportedTypeError(ServiceError):
    status = 415
    title = "Unsupported media type"


class UnprocessableError(ServiceError):
    status = 422
    title = "Cannot be used"


class VersionMissingError(ServiceError):
    status = 428
    title = "Version missing"


class RetryLaterError(ServiceError):
    """The same request may be sent again after some seconds."""

    def __init__(self, code: str, detail: str, *, retry_after_s: int) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after_s)}


class RateLimitedError(RetryLaterError):
    """One client sends too many requests; the service itself is fine."""

    status = 429
    title = "Too many requests"

    def __init__(self, wait_s: float) -> None:
        after_s = math.ceil(wait_s)
        detail = f"Too many requests; try again in {after_s} s."
        super().__init__("rate_limited", detail, retry_after_s=after_s)


class TooManyStreamsError(RetryLaterError):
    """One key holds more event streams open than its readers can need."""

    status = 429
    title = "Too many streams"

    def __init__(self, most: int, retry_after_s: int) -> None:
        detail = f"This key has {most} event streams open, the most it may have."
        super().__init__("too_many_streams", detail, retry_after_s=retry_after_s)


class TooManyBacktestsError(RetryLaterError):
    """One key runs more backtests at once than anyone could read."""

    status = 429
    title = "Too many backtests"

    def __init__(self, most: int, retry_after_s: int) -> None:
        detail = f"This key has {most} backtests running, the most it may have."
        super().__init__("too_many_backtests", detail, retry_after_s=retry_after_s)


class OverloadedError(RetryLaterError):
    """The service is too busy; the request itself is fine and may be sent again shortly."""

    status = 503
    title = "Overloaded"

    def __init__(self, code: str, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(code, detail, retry_after_s=retry_after_s)


REFUSALS: Final[tuple[type[ServiceError], ...]] = (
    BadRequestError,
    UnauthenticatedError,
    ForbiddenError,
    NotFoundError,
    ConflictError,
    ChangedMeanwhileError,
    TooLargeError,
    UnsupportedTypeError,
    UnprocessableError,
    VersionMissingError,
    RateLimitedError,
    OverloadedError,
)
"""The refusals of the documented interface, one per HTTP status."""
_TITLES: Final = {kind.status: kind.title for kind in REFUSALS}


def title_of(status: int) -> str | None:
    """The title of refusals with this status; None if we never refuse with it."""
    return _TITLES.get(status)


class SettingsError(RunwatchError, ValueError):
    """A setting that cannot be used; says its name, what was found and what was wanted."""


class DataDirError(RunwatchError):
    """The data directory cannot be created or written."""

    def __init__(self, data_dir: Path, error: OSError) -> None:
        super().__init__(
            f"data directory {data_dir}: found {error.strerror or error}, wanted a folder that "
            "can be created and written"
        )


class NoDatabaseError(RunwatchError):
    """The data directory does not exist, or holds no database."""

    def __init__(self, data_dir: Path, file: str) -> None:
        found = f"no {file} in it" if data_dir.is_dir() else "no such folder"
        super().__init__(f"data directory {data_dir}: found {found}, wanted that of a service")


class LostDatabaseError(RunwatchError):
    """A service has run in this data directory, and its database is gone."""

    def __init__(self, secret: Path) -> None:
        super().__init__(
            f"data directory {secret.parent}: found {secret.name}, but no tables in runwatch.db, "
            "wanted those of the service that made it; was runwatch.db or runwatch.db-wal deleted? "
            "Put them back; or move runwatch.db away and restore a backup with `runwatch db "
            f"restore`; or, to begin anew without what was there, delete {secret}"
        )


class DatabaseDamagedError(RunwatchError):
    """The database cannot be read."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place}: found damage ({why}), wanted an intact database; `runwatch db restore` puts "
            "a backup into a new --data-dir, and `serve` starts afresh in an empty one"
        )


class DatabaseUnreachableError(RunwatchError):
    """The database server does not answer, or refuses the connection."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"database {place}: found {why}, wanted a PostgreSQL that accepts us")


class DataDirInUseError(RunwatchError):
    """Another service uses the data directory; two writers would damage the database."""

    def __init__(self, data_dir: Path, owner: str) -> None:
        super().__init__(
            f"data directory {data_dir}: found it in use by process {owner or 'unknown'}, "
            "wanted it free; stop that service first, or give this one a directory of its own"
        )
