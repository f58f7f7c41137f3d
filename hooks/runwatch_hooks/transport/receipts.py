"""Receipts that the service has not received yet."""

import threading
from collections.abc import Iterable

from runwatch.commands import Receipt


class ReceiptBox:
    """Receipts are put by any thread and delivered by the sender."""

    def __init__(self, receipts: Iterable[Receipt] = ()) -> None:
        self._lock = threading.RLock()  # reentrant because of signal handlers, as in RowQueue
        self._waiting = list(receipts)
        self.version = 0
        """Changes with the content, so that the copy on disk can be kept up to date."""

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
