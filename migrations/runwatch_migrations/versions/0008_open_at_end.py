"""An index to find the alerts that were open when their run ended among all closed ones.

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
