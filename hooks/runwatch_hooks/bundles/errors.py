"""What can be wrong with a bundle.

RunwatchError (runwatch.errors)
└── BundleError      a bundle that cannot be written, or read back
"""

from runwatch.errors import RunwatchError


class BundleError(RunwatchError):
    """Names the place, what was found and what was wanted."""
