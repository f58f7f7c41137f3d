"""How processes on one database reach each other."""

from collections.abc import Callable
from typing import Protocol


class Channel(Protocol):
    """Carries short messages to all who listen at that moment."""

    async def tell(self, payload: str) -> None:
        """Raises OSError where it could not be sent."""
        ...

    async def listen(self, hear: Callable[[str], None]) -> None:
        """Until the connection breaks, which raises OSError. What is said in between is lost."""
        ...
