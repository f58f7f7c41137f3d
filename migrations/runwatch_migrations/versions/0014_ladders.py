"""The rung of its rule's ladder that an alert has reached.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("rung", sa.Integer))


def downgrade() -> None:
    op.drop_column("alerts", "rung")
