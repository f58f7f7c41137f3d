"""The tables of runs and their attempts."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("project", sa.String(256), nullable=False),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("policy", sa.String(16)),  # null: the service's default
    sa.Column("config", sa.Text, nullable=False),  # JSON
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("current_attempt", sa.Integer, nullable=False),  # 0 before the first
    sa.Column("last_step", sa.BigInteger),
    sa.Column("run_group", sa.String(256)),  # null: in no group
    sa.Column("lost_at", sa.Double),  # when it was last found lost, by the service's clock
    sa.Index("ix_runs_created", "created_at", "id"),
    sa.Index("ix_runs_project_created", "project", "created_at", "id"),
    sa.Index("ix_runs_group", "project", "run_group", "id"),
    sa.Index("ix_runs_state", "state", "id"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.String(64), nullable=False),  # its SHA-256, in hexadecimal
    sa.Column("live", sa.Boolean, nullable=False),
    sa.Column("started_at", sa.Double, nullable=False),  # by the trainer's clock
    sa.Column("opened_at", sa.Double, nullable=False),
    sa.Column("resume_step", sa.BigInteger, nullable=False),
    sa.Column("world_size", sa.Integer, nullable=False),
    sa.Column("allow", sa.Text, nullable=False),  # kinds of action, space separated
    sa.Column("host", sa.Text, nullable=False),  # JSON
    sa.Column("closed_at", sa.Double),
    sa.Column("status", sa.String(16)),
    sa.Column("reason", sa.Text),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("signing_key", sa.String(16)),  # fingerprint; null: its commands are not signed
    sa.Column("outlived_at", sa.Double),  # when it first spoke after a newer one had replaced it
    sa.UniqueConstraint("run_id", "token", name="uq_attempts_token"),
)
