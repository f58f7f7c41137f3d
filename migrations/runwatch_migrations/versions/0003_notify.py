"""Notifications: notices, the outbox of deliveries, and silences.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("alert_id", sa.String(26), primary_key=True),
        sa.Column("fired_at", sa.Double, nullable=False),
        sa.Column("layer_group", sa.String(256), nullable=False),
        sa.Column("resolved_at", sa.Double),
    )
    op.create_index("ix_notices_resolved", "notices", ["resolved_at"])
    _create_deliveries()
    op.create_table(
        "silences",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("matchers", sa.Text, nullable=False),
        sa.Column("starts_at", sa.Double, nullable=False),
        sa.Column("ends_at", sa.Double, nullable=False),
        sa.Column("author", sa.String(256), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index("ix_silences_end", "silences", ["ends_at"])


def downgrade() -> None:
    for table in ("silences", "deliveries", "notices"):
        op.drop_table(table)


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("alert_id", sa.String(26), nullable=False),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("receiver", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("dedup_key", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("first_failed_at", sa.Double),
        sa.Column("delivered_at", sa.Double),
        sa.Column("error", sa.Text),
        sa.UniqueConstraint("run_id", "alert_id", "receiver", "kind", name="uq_deliveries_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deliveries_due", "deliveries", ["receiver", "state", "due_at"])
