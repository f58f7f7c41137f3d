"""Each entry of the audit log carries a digest of itself and of the one before it.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("digest", sa.String(64)))


def downgrade() -> None:
    op.drop_column("audit", "digest")
