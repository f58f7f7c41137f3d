"""The seam to the object store: three things that a folder and a bucket both can."""

from collections.abc import Sequence
from typing import Protocol

from runwatch.errors import RunwatchError


class ObjectLostError(RunwatchError):
    """The store answers, and has no such object."""


class ObjectsAwayError(RunwatchError):
    """The store does not answer, or not in time, or refuses us: the object may still be there."""


class ObjectStore(Protocol):
    """Objects are written once, under a name that is never used again, and never changed.

    None is ever looked for by listing: what is there stands in the database, so that a service
    never touches an object that another one may have put beside its own.
    """

    @property
    def place(self) -> str:
        """Where they are, for people: without credentials."""
        ...

    async def put(self, name: str, content: bytes) -> None:
        """Returns once the object is there to stay. Raises ObjectsAwayError."""
        ...

    async def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes [start, end) of each range; fewer where the object is shorter than it was.

        Raises ObjectLostError, ObjectsAwayError.
        """
        ...

    async def delete(self, name: str) -> None:
        """Removes an object; one that is not there is no error. Raises ObjectsAwayError."""
        ...
