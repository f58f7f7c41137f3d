"""The tables of API keys and the page's sessions; only hashes of secrets are stored."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String(8), primary_key=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),  # space separated
    sa.Column("project", sa.String(256)),  # null: every project
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("created_by", sa.String(256), nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("last_used_at", sa.Double),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("secret_hash", sa.String(64), primary_key=True),
    sa.Column("key_id", sa.String(8), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Index("ix_sessions_expiry", "expires_at"),
)
