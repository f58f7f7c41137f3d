"""Compares the runs of a group, such as seeds or a sweep, with each other."""
