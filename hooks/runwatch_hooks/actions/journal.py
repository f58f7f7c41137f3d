"""The commands that this run has answered, so that none is applied twice.

It is part of every checkpoint, so that a trainer restarted from one knows what it had done by then.
A rollback does not touch it: a command stays applied even if the step at which it was applied is
undone.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from runwatch.commands import Receipt
from runwatch.vocabulary import CommandId

_MAX_RECEIPTS: Final = 1024
"""A command expires long before this many others have been sent."""


def receipts_of(document: object) -> Sequence[Receipt]:
    """The receipts in `Journal.to_document`. Raises ValidationError."""
    return msgspec.convert(document, list[Receipt])


class Journal:
    """The newest receipts, by command id."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[CommandId, Receipt] = OrderedDict()

    def __contains__(self, command_id: CommandId) -> bool:
        return command_id in self._receipts

    def __len__(self) -> int:
        return len(self._receipts)

    def find(self, command_id: CommandId) -> Receipt | None:
        return self._receipts.get(command_id)

    def add(self, receipt: Receipt) -> None:
        self._receipts[receipt.command_id] = receipt
        self._receipts.move_to_end(receipt.command_id)
        while len(self._receipts) > _MAX_RECEIPTS:
            self._receipts.popitem(last=False)

    def to_document(self) -> list[dict[str, object]]:
        return [msgspec.to_builtins(receipt) for receipt in self._receipts.values()]

    def merge(self, older: Sequence[Receipt]) -> None:
        """Add the receipts of an older journal; this one's take precedence."""
        for receipt in [*older, *self._receipts.values()]:
            self.add(receipt)
