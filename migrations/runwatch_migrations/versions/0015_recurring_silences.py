"""Recurring silences, for maintenance windows.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("silences", sa.Column("recurs", sa.Text))  # JSON


def downgrade() -> None:
    op.drop_column("silences", "recurs")
