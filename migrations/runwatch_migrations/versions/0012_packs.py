"""Packs: old frames are stored as objects outside the database, which keeps their index.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "packs",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("segment", sa.Integer, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("object", sa.String(128), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("packed_at", sa.Double, nullable=False),
        sa.Column("contents", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ix_packs_steps", "packs", ["run_id", "attempt", "rank", "segment", "first_step"]
    )
    op.create_table(
        "loose_objects",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("noted_at", sa.Double, nullable=False),
        sa.Column("condemned", sa.Boolean, nullable=False),
    )
    op.create_index("ix_loose_objects_noted", "loose_objects", ["noted_at"])


def downgrade() -> None:
    op.drop_table("loose_objects")
    op.drop_table("packs")
