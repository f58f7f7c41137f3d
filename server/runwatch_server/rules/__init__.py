"""Which rules judge a run: the built-in pack, and what people added to it."""
