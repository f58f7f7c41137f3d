"""What can come back instead of an answer.

TransportError (RunwatchError)
├── RetryLaterError      nobody there, overloaded, or no answer that we understand
├── ForbiddenError       401, 403: the key is not good for this run
└── RefusedError         any other 4xx: asking again would not help
    ├── StaleAttemptError    a newer life of the run has begun, or the run was ended
    └── UnknownLayoutError   the frame's columns were not registered, or that was forgotten
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


class UnknownLayoutError(RefusedError):
    pass
