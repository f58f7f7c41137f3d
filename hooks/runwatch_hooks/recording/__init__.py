"""The making of a step's row, from what was given and measured, until it leaves the watch."""
