"""Runs the step of a diagnostic bundle again, and names what made the first non-finite number.

Nothing here is imported by a training program.
"""
