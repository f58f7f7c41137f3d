"""Replays the step of a diagnostic bundle, and names what made the first non-finite number.

Not imported by training programs.
"""

from runwatch_hooks.oldest_versions import check_torch

check_torch()
