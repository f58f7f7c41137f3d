"""Keeps the cost of watching within `max_overhead`, by reading less of some steps."""

from runwatch_hooks.governor.applicability import check_thinnable
from runwatch_hooks.governor.governor import Change, Governor
from runwatch_hooks.governor.ladder import EVERYTHING, Rung, Sampled
from runwatch_hooks.governor.meter import Meter

__all__ = ["EVERYTHING", "Change", "Governor", "Meter", "Rung", "Sampled", "check_thinnable"]
