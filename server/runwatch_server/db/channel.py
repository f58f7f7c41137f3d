"""The interface by which processes on one database notify each other."""

from collections.abc import Callable
from typing import Protocol


class Channel(Protocol):
    """Carries short messages to all who listen at that moment."""

    async def notify(self, payload: str) -> None:
        """Send a message. Raises OSError if it could not be sent."""
        ...

    async def listen(self, on_message: Callable[[str], None]) -> None:
        """Listen until the connection breaks, which raises OSError. Messages sent in between are
        lost."""
        ...
