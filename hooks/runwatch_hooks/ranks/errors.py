"""Errors of the communication between ranks.

StoreError
├── StoreLostError      the store cannot be reached: its host has exited, or the network failed
└── StoreTimeoutError   the expected key was not put in time
"""


class StoreError(Exception):
    """The ranks could not communicate."""


class StoreLostError(StoreError):
    """The store cannot be reached. It does not come back: do not retry."""


class StoreTimeoutError(StoreError):
    """No rank put the key in time."""
