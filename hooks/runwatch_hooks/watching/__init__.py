"""The watch from the inside: what it does at each boundary, and from its beginning to its end."""
