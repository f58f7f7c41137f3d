"""The overview of all runs: which are in trouble, how far each is, and how its loss develops."""
