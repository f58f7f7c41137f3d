"""Indexes to list alerts by severity and those acknowledged, and to count those that runs left.

Revision ID: 0020
Revises: 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_ACKED = sa.text("acked_at IS NOT NULL")
_LEFT = (
    "resolution = 'run_ended' AND severity != 'info' AND acked_at IS NULL "
    "AND inhibited_by IS NULL AND"
)


def upgrade() -> None:
    op.create_index("ix_alerts_severity", "alerts", ["severity", "id"])
    op.create_index(
        "ix_alerts_acked", "alerts", ["id"], sqlite_where=_ACKED, postgresql_where=_ACKED
    )
    op.create_index(
        "ix_alerts_left",
        "alerts",
        ["run_id", "attempt", "severity"],
        sqlite_where=sa.text(f"{_LEFT} shadow = 0"),
        postgresql_where=sa.text(f"{_LEFT} NOT shadow"),
    )
    op.drop_index("ix_alerts_resolution", "alerts")


def downgrade() -> None:
    op.create_index("ix_alerts_resolution", "alerts", ["resolution"])
    op.drop_index("ix_alerts_left", "alerts")
    op.drop_index("ix_alerts_acked", "alerts")
    op.drop_index("ix_alerts_severity", "alerts")
