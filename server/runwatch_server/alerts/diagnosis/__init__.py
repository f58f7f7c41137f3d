"""Diagnosis of an alert: what went wrong first, what changed before it, and what to try."""
