"""How a step of the training is followed, and who observes it."""
