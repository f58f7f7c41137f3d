"""What can go wrong between ranks.

StoreError
├── StoreLostError      the store is gone: its host has left, or the network
└── StoreTimeoutError   nobody has put what was waited for
"""


class StoreError(Exception):
    """The ranks could not tell one another something."""


class StoreLostError(StoreError):
    """The store is gone. It does not come back: stop asking, quietly."""


class StoreTimeoutError(StoreError):
    """Nobody put the key in time."""
