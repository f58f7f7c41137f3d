"""Turns optimizer steps that would spoil the weights into no-ops."""

from runwatch_hooks.guard.guard import Guard
from runwatch_hooks.guard.objections import check_guardable
from runwatch_hooks.guard.outliers import Outliers

__all__ = ["Guard", "Outliers", "check_guardable"]
