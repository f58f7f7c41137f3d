"""Retention settings of projects and of runs.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "project_retention",
        sa.Column("project", sa.String(256), primary_key=True),
        *_ages(),
    )
    op.create_table(
        "run_retention",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("pinned", sa.Boolean, nullable=False),
        *_ages(),
    )


def downgrade() -> None:
    op.drop_table("run_retention")
    op.drop_table("project_retention")


def _ages() -> tuple[sa.Column[float], ...]:
    names = ("raw_days", "evidence_days", "rollup_days")
    return tuple(sa.Column(name, sa.Double) for name in names)
