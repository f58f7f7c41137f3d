"""Alerts that were open when their run ended are found at once, among all that are over.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_alerts_resolution", "alerts", ["resolution"])


def downgrade() -> None:
    op.drop_index("ix_alerts_resolution", "alerts")
