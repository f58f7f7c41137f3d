"""Alembic versions."""
