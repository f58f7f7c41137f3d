"""The index that counts what runs left holds alerts that settled worse, too.

Revision ID: 0021
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_WORSE = "resolution IN ('run_ended', 'settled_worse')"
_ENDED = "resolution = 'run_ended'"
_UNSEEN = "severity != 'info' AND acked_at IS NULL AND inhibited_by IS NULL AND"


def upgrade() -> None:
    _index_those(_WORSE)


def downgrade() -> None:
    _index_those(_ENDED)


def _index_those(left: str) -> None:
    op.drop_index("ix_alerts_left", "alerts")
    op.create_index(
        "ix_alerts_left",
        "alerts",
        ["run_id", "attempt", "severity"],
        sqlite_where=sa.text(f"{left} AND {_UNSEEN} shadow = 0"),
        postgresql_where=sa.text(f"{left} AND {_UNSEEN} NOT shadow"),
    )
