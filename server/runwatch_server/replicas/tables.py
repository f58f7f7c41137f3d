"""Tables of leases, and of signs of life."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),  # for a run: its id
    sa.Column("owner", sa.String(26), nullable=False),  # one lifetime of a replica
    sa.Column("epoch", sa.BigInteger, nullable=False),  # grows with each new owner
    sa.Column("expires_at", sa.Double, nullable=False),  # by the database's clock
    sa.Index("ix_leases_owner", "owner"),
)
"""Who may write the results of judging a run, and until when."""

signs = sa.Table(
    "signs",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("noted_by", sa.String(26), nullable=False),
    sa.Column("noted_at", sa.Double, nullable=False),  # all times: the database's clock
    sa.Column("contact_at", sa.Double, nullable=False),
    sa.Column("step_at", sa.Double),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("step_time_s", sa.Double),
    sa.Column("lr_scale", sa.Double, nullable=False),
    sa.Column("dropped_rows", sa.BigInteger, nullable=False),
    sa.Column("spooled_frames", sa.BigInteger, nullable=False),
    sa.Column("has_left", sa.Boolean, nullable=False),
    sa.Index("ix_signs_noted", "noted_at"),
)
"""The newest sign of life of each rank, whichever replica received it."""
