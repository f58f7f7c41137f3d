"""Frames that have cooled: packed into immutable objects, by column, and read back to the bit."""
