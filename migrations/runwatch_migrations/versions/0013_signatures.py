"""Commands are signed with a secret that their attempt's trainer received.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("signing_key", sa.String(16)))
    op.add_column("commands", sa.Column("signature", sa.String(64)))


def downgrade() -> None:
    op.drop_column("commands", "signature")
    op.drop_column("attempts", "signing_key")
