"""Errors of requests to the service.

TransportError (RunwatchError)
├── RetryLaterError      no service there, overloaded, or a reply that cannot be understood
├── ForbiddenError       401, 403: the key is not valid for this run
└── RefusedError         any other 4xx: asking again would not help
    ├── StaleAttemptError    a newer attempt of the run has begun, or the run has ended
    ├── UnknownAttemptError  the service does not know the attempt's token
    └── UnknownLayoutError   the service does not know the frame's layout
"""

from runwatch.errors import RunwatchError


class TransportError(RunwatchError):
    """A request that did not succeed."""


class RetryLaterError(TransportError):
    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ForbiddenError(TransportError):
    pass


class RefusedError(TransportError):
    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class StaleAttemptError(RefusedError):
    pass


class UnknownAttemptError(RefusedError):
    pass


class UnknownLayoutError(RefusedError):
    pass
