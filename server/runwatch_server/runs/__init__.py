"""Runs and their attempts, and whether they are alive."""
