"""How much of a step watching may take: what it takes is measured, and less is read where it is
more than was allowed."""

from runwatch_hooks.governor.applicability import check_thinnable
from runwatch_hooks.governor.governor import Change, Governor
from runwatch_hooks.governor.ladder import EVERYTHING, Rung, Sampled
from runwatch_hooks.governor.meter import Meter

__all__ = ["EVERYTHING", "Change", "Governor", "Meter", "Rung", "Sampled", "check_thinnable"]
