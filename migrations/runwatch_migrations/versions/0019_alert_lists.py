"""Indexes to list a rule's alerts, and a project's.

Revision ID: 0019
Revises: 0018
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_alerts_rule", "alerts", ["rule", "id"])
    op.create_index("ix_alerts_project", "alerts", ["project", "id"])


def downgrade() -> None:
    op.drop_index("ix_alerts_project", "alerts")
    op.drop_index("ix_alerts_rule", "alerts")
