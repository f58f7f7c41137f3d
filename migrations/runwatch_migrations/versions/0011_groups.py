"""Runs that repeat one another (seeds, a sweep) name their group.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("run_group", sa.String(256)))
    op.create_index("ix_runs_group", "runs", ["project", "run_group", "id"])


def downgrade() -> None:
    op.drop_index("ix_runs_group", "runs")
    op.drop_column("runs", "run_group")
