"""Errors of bundles.

RunwatchError (runwatch.errors)
└── BundleError      a bundle that cannot be written, or read back
"""

from runwatch.errors import RunwatchError


class BundleError(RunwatchError):
    """The message names the place, what was found and what was wanted."""
