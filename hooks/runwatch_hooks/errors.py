"""Errors in the use of the hook. They are raised by `attach` and `open_run` only, never later.

RunwatchError (runwatch.errors)
└── InvalidInputError (ValueError)
    └── AttachError        an argument of `attach`, or its environment variable, that cannot be used
"""

from runwatch.errors import InvalidInputError


class AttachError(InvalidInputError):
    """An argument that cannot be used. The message names it, what was found and what was wanted."""

    code = "invalid_attach"
