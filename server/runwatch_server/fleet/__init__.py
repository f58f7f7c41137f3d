"""All runs at a glance: which is in trouble, how far each has come, and how its loss goes."""
