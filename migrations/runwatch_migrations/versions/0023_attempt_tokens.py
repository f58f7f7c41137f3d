"""Of the token that proves who opened an attempt only the SHA-256 is kept, and an attempt says
whether it went on after a newer one had replaced it.

Revision ID: 0023
Revises: 0022
"""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("outlived_at", sa.Double))
    # The column keeps its name: a replica of the version before reads it until it is upgraded.
    text = sa.Text()
    attempts = sa.table(
        "attempts",
        sa.column("run_id", text),
        sa.column("attempt", sa.Integer()),
        sa.column("token", text),
    )
    for run_id, attempt, token in op.get_bind().execute(sa.select(attempts)).all():
        of_attempt = (attempts.c.run_id == run_id) & (attempts.c.attempt == attempt)
        token_hash = hashlib.sha256(token.encode()).hexdigest()
        op.execute(attempts.update().where(of_attempt).values(token=token_hash))


def downgrade() -> None:
    op.drop_column("attempts", "outlived_at")
