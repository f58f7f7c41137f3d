"""What is taken on request only: histograms, and what modules return."""

from runwatch_hooks.detail.detail import Closeup, Detail
from runwatch_hooks.detail.schedule import Schedule

__all__ = ["Closeup", "Detail", "Schedule"]
