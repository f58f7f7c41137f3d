"""Alerts explained by others, alerts of rules on trial, and why an alert was closed.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("inhibited_by", sa.String(256)))
    op.add_column(
        "alerts", sa.Column("shadow", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.add_column("alerts", sa.Column("resolution", sa.String(32)))
    # Until now only the events said why an alert was closed.
    op.execute("UPDATE alerts SET resolution = 'recovered' WHERE state = 'resolved'")
    op.execute(
        "UPDATE alerts SET resolution = 'run_ended' WHERE state = 'resolved' AND id IN "
        "(SELECT alert_id FROM alert_events WHERE kind = 'resolved' AND detail LIKE '%ended%')"
    )


def downgrade() -> None:
    for column in ("resolution", "shadow", "inhibited_by"):
        op.drop_column("alerts", column)
