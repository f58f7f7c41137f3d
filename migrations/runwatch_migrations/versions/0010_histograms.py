"""Histograms of gradients, weights and activations, if a trainer was asked for them.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "histograms",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("rank", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("segment", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("part", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("names", sa.LargeBinary, nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "kind", "rank", "step", "attempt", "segment", "part"),
    )


def downgrade() -> None:
    op.drop_table("histograms")
