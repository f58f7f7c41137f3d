"""Answers to commands, kept until the service has them."""

import threading
from collections.abc import Iterable

from runwatch.commands import Receipt


class ReceiptBox:
    """Put by any thread; delivered by the sender."""

    def __init__(self, receipts: Iterable[Receipt] = ()) -> None:
        self._lock = threading.RLock()  # as RowQueue's, for the sake of signal handlers
        self._waiting = list(receipts)
        self.version = 0
        """Changes with the content, so that a copy on disk can follow."""

    def put(self, receipt: Receipt) -> None:
        with self._lock:
            self._waiting.append(receipt)
            self.version += 1

    def waiting(self) -> list[Receipt]:
        with self._lock:
            return list(self._waiting)

    def delivered(self, receipt: Receipt) -> None:
        with self._lock:
            self._waiting.remove(receipt)
            self.version += 1
