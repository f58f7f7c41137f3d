"""Frames that came after the watermark of their stream had passed them, and are still to be judged.

Revision ID: 0025
Revises: 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "passed_over",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    )


def downgrade() -> None:
    op.drop_table("passed_over")
