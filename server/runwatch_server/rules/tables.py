"""The tables of people's rules and of all their versions."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

rules = sa.Table(
    "rules",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("project", sa.String(256), nullable=False),  # empty: every project
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON, one rule as its file had it
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("updated_by", sa.String(256), nullable=False),
    sa.UniqueConstraint("project", "name", name="uq_rules_name"),
)

rule_versions = sa.Table(
    "rule_versions",
    metadata,
    sa.Column("rule_id", sa.String(26), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False),
    sa.Column("document", sa.Text, nullable=False),  # JSON
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
)
