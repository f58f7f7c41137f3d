"""What is sent to a receiver, and what sends it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    title: str
    body: str
    dedup_key: str
    """The same for all that is told of one incident, and for what is sent twice."""
    is_over: bool
    """Whether it ends the incident."""


class Sender(Protocol):
    def send(self, message: Message) -> bool:
        """Whether the receiver took it. Blocks; to be called on a worker thread."""
        ...
