"""The table of the audit's entries."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

audit = sa.Table(
    "audit",
    metadata,
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
    sa.Column("project", sa.String(256), nullable=False),  # empty: every project
    sa.Column("about_run", sa.String(26)),  # stays when the run is removed
    sa.Column("deed", sa.String(64), nullable=False),
    sa.Column("subject", sa.String(256), nullable=False),  # id of the command, alert or rule
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Column("digest", sa.String(64)),  # of the entry and of the digest before; see chain.py
    sqlite_autoincrement=True,
)
