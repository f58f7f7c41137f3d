"""The database schema, version by version."""
