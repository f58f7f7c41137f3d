"""Several replicas: which one looks after which run, and the signs of life that each received.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(26), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_index("ix_leases_owner", "leases", ["owner"])
    op.create_table(
        "signs",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("noted_by", sa.String(26), nullable=False),
        sa.Column("noted_at", sa.Double, nullable=False),
        sa.Column("contact_at", sa.Double, nullable=False),
        sa.Column("step_at", sa.Double),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("step_time_s", sa.Double),
        sa.Column("lr_scale", sa.Double, nullable=False),
        sa.Column("dropped_rows", sa.BigInteger, nullable=False),
        sa.Column("spooled_frames", sa.BigInteger, nullable=False),
        sa.Column("has_left", sa.Boolean, nullable=False),
    )
    op.create_index("ix_signs_noted", "signs", ["noted_at"])
    if op.get_bind().dialect.name == "postgresql":
        # Already compressed: PostgreSQL's own compression would only cost time.
        for table, column in _PACKED:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_table("signs")
    op.drop_table("leases")


_PACKED = (("frames", "body"), ("rollups", "data"), ("layouts", "document"))
