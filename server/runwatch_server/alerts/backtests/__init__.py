"""Backtests: the alerts that rules would have raised on a stored run."""
