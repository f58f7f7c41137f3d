"""What can be wrong with a replay.

RunwatchError (runwatch.errors)
└── InvalidInputError (ValueError)
    └── ReplayError      a program that does not fit the bundle, or cannot be run
"""

from runwatch.errors import InvalidInputError


class ReplayError(InvalidInputError):
    """Names the place, what was found and what was wanted."""

    code = "invalid_replay"
