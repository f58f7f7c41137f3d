"""Since when a run is lost, and indexes to list runs by the service's clock.

Revision ID: 0022
Revises: 0020
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("lost_at", sa.Double))
    runs = sa.table("runs", sa.column("state", sa.String), sa.column("lost_at", sa.Double))
    op.execute(runs.update().where(runs.c.state == "lost").values(lost_at=time.time()))
    op.create_index("ix_runs_created", "runs", ["created_at", "id"])
    op.create_index("ix_runs_project_created", "runs", ["project", "created_at", "id"])
    op.drop_index("ix_runs_project", "runs")


def downgrade() -> None:
    op.create_index("ix_runs_project", "runs", ["project", "id"])
    op.drop_index("ix_runs_project_created", "runs")
    op.drop_index("ix_runs_created", "runs")
    op.drop_column("runs", "lost_at")
