"""Steps that would spoil the weights, made to change nothing as they are taken."""

from runwatch_hooks.guard.guard import Guard
from runwatch_hooks.guard.objections import check_guardable
from runwatch_hooks.guard.outliers import Outliers

__all__ = ["Guard", "Outliers", "check_guardable"]
