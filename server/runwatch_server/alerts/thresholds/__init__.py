"""The thresholds of rules over a run's steps, to draw over its charts."""
