"""What can be wrong with the use of the hook. Raised at attach time only: later, nothing is.

RunwatchError (runwatch.errors)
└── InvalidInputError (ValueError)
    └── AttachError        an argument of `attach`, or its environment variable, that cannot be used
"""

from runwatch.errors import InvalidInputError


class AttachError(InvalidInputError):
    """An argument that cannot be used: names it, what was found and what was wanted."""

    code = "invalid_attach"
