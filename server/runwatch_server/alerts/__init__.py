"""Judging what arrives: evaluators in step order, alerts, and what they ask for."""
