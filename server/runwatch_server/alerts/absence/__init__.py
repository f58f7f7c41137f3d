"""Alerts about what does not come: silent runs and ranks, steps and phases that take too long."""
