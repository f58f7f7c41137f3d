"""Notifies people of runs that failed and said so, and that nobody has started again."""
