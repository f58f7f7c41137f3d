"""The implementations of `Watch`: what is done at each boundary, at the beginning, at the end."""
