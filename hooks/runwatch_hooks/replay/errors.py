"""Errors of a replay.

RunwatchError (runwatch.errors)
└── InvalidInputError (ValueError)
    └── ReplayError      a program that does not fit the bundle, or cannot be run
"""

from runwatch.errors import InvalidInputError


class ReplayError(InvalidInputError):
    """The message names the place, what was found and what was wanted."""

    code = "invalid_replay"
