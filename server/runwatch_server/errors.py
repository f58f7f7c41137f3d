"""What the service refuses, and why it does not start.

RunwatchError
├── ServiceError                an answer to a request: carries its status and a stable code
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
│   └── RetryLaterError         with the seconds after which to come again
│       ├── RateLimitedError    429
│       ├── TooManyStreamsError 429
│       ├── TooManyBacktestsError 429
│       └── OverloadedError     503
├── SettingsError (ValueError)  a setting that cannot be used
├── DataDirError                the data directory cannot be made or written
├── NoDatabaseError             a data directory that is not there, or holds no database
├── DatabaseUnreachableError    the database's server does not answer, or refuses us
├── DatabaseDamagedError        SQLite's file is damaged, or none of SQLite's
├── BackupError                 a copy that was not made, or cannot be used (db/backup.py)
└── DataDirInUseError           another service has the data directory open
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runwatch.errors import RunwatchError


class ServiceError(RunwatchError):
    """A refusal that is told to the client as a problem (RFC 9457)."""

    status = 500
    title = "Internal error"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        """Stable name of the error, for programs."""
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
    """The same request may be sent again, after some seconds."""

    def __init__(self, code: str, detail: str, *, retry_after_s: int) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after_s)}


class RateLimitedError(RetryLaterError):
    """One asker asks too often; the others are well."""

    status = 429
    title = "Too many requests"

    def __init__(self, wait_s: float) -> None:
        after_s = math.ceil(wait_s)
        detail = f"Too many requests; come again in {after_s} s."
        super().__init__("rate_limited", detail, retry_after_s=after_s)


class TooManyStreamsError(RetryLaterError):
    """One key holds more event streams open than its readers can need."""

    status = 429
    title = "Too many streams"

    def __init__(self, most: int, retry_after_s: int) -> None:
        detail = f"The key has {most} event streams open, and may have no more."
        super().__init__("too_many_streams", detail, retry_after_s=retry_after_s)


class TooManyBacktestsError(RetryLaterError):
    """One key has more backtests under way than one who reads them can need."""

    status = 429
    title = "Too many backtests"

    def __init__(self, most: int, retry_after_s: int) -> None:
        detail = f"The key has {most} backtests under way, and may have no more."
        super().__init__("too_many_backtests", detail, retry_after_s=retry_after_s)


class OverloadedError(RetryLaterError):
    """Nothing is wrong with the request: it may be sent again, a little later."""

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
"""What a request may be answered with, by status; each has its own."""
_TITLES: Final = {kind.status: kind.title for kind in REFUSALS}


def title_of(status: int) -> str | None:
    """What a refusal with this status is called, whoever refuses; None: we never do."""
    return _TITLES.get(status)


class SettingsError(RunwatchError, ValueError):
    """A setting that cannot be used: its name, what was found, what was wanted."""


class DataDirError(RunwatchError):
    """Nothing can be kept there."""

    def __init__(self, data_dir: Path, error: OSError) -> None:
        super().__init__(
            f"data directory {data_dir}: found {error.strerror or error}, wanted a folder that "
            "can be made and written"
        )


class NoDatabaseError(RunwatchError):
    """Nothing was ever kept there."""

    def __init__(self, data_dir: Path, file: str) -> None:
        found = f"no {file} in it" if data_dir.is_dir() else "no such folder"
        super().__init__(f"data directory {data_dir}: found {found}, wanted one of a service")


class DatabaseDamagedError(RunwatchError):
    """What was kept there cannot be read."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place}: found damage ({why}), wanted a whole database; `runwatch db restore` puts a "
            "backup into a new --data-dir, and a new one without it begins anew"
        )


class DatabaseUnreachableError(RunwatchError):
    """Nothing can be kept there."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"database {place}: found {why}, wanted a PostgreSQL that lets us in")


class DataDirInUseError(RunwatchError):
    """A second service on one data directory would be a second writer."""

    def __init__(self, data_dir: Path, owner: str) -> None:
        super().__init__(
            f"data directory {data_dir}: found it in use by process {owner or 'unknown'}, "
            "wanted it free; stop that service first, or give this one a directory of its own"
        )
