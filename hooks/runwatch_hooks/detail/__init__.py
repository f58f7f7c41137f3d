"""Measurements on request only: histograms, and statistics of module outputs."""

from runwatch_hooks.detail.detail import Closeup, Detail
from runwatch_hooks.detail.schedule import Schedule

__all__ = ["Closeup", "Detail", "Schedule"]
