"""Replays the step of a diagnostic bundle, and names what made the first non-finite number.

Not imported by training programs.
"""
