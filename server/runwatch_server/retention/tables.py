"""The tables of the ages that projects and runs set."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

project_retention = sa.Table(
    "project_retention",
    metadata,
    sa.Column("project", sa.String(256), primary_key=True),
    sa.Column("raw_days", sa.Double),
    sa.Column("evidence_days", sa.Double),
    sa.Column("rollup_days", sa.Double),
)

run_retention = sa.Table(
    "run_retention",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("raw_days", sa.Double),
    sa.Column("evidence_days", sa.Double),
    sa.Column("rollup_days", sa.Double),
)
