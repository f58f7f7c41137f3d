"""Retention: how long a run's data is kept, as set for the service, a project or the run."""
