"""Follows training steps: the run's optimizers and layers, and when in a step each is read."""
