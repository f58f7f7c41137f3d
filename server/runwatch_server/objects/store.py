"""The interface of an object store: three operations that both a folder and a bucket offer."""

from collections.abc import Sequence
from typing import Protocol

from runwatch.errors import RunwatchError


class ObjectLostError(RunwatchError):
    """The store answers, but has no such object."""


class ObjectsAwayError(RunwatchError):
    """The store does not answer, or not in time, or denies access: the object may still be
    there."""


class ObjectStore(Protocol):
    """Objects are written once, under a name that is never used again, and never changed.

    Objects are never found by listing: the database says which there are, so that a service never
    touches an object that another one may have put beside its own.
    """

    @property
    def place(self) -> str:
        """Where the objects are, for display, without credentials."""
        ...

    async def put(self, name: str, content: bytes) -> None:
        """Write an object; returns once it is durable. Raises ObjectsAwayError."""
        ...

    async def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes [start, end) of each range; fewer if the object is shorter than it was.

        Raises ObjectLostError or ObjectsAwayError.
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove an object; it is no error if it does not exist. Raises ObjectsAwayError."""
        ...
