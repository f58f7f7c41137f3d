"""Runs and their attempts: who trains what, and whether it is alive."""
