"""The segment in which a run continued after the command that was to cure an alert.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("acted_segment", sa.Integer))


def downgrade() -> None:
    op.drop_column("alerts", "acted_segment")
