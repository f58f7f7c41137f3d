"""How often a problem has occurred, and until which step its end waits before it is sent.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("notices", sa.Column("times", sa.Integer))
    op.add_column("notices", sa.Column("settles_step", sa.BigInteger))
    op.create_index("ix_notices_settling", "notices", ["settles_step"])


def downgrade() -> None:
    op.drop_index("ix_notices_settling", "notices")
    op.drop_column("notices", "settles_step")
    op.drop_column("notices", "times")
