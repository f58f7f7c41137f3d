"""Indexes to find a notice by its alert, an incident's deliveries, and old deliveries.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_notices_alert", "notices", ["alert_id"])
    op.create_index("ix_deliveries_incident", "deliveries", ["receiver", "dedup_key"])
    op.create_index("ix_deliveries_created", "deliveries", ["created_at"])


def downgrade() -> None:
    op.drop_index("ix_deliveries_created", "deliveries")
    op.drop_index("ix_deliveries_incident", "deliveries")
    op.drop_index("ix_notices_alert", "notices")
