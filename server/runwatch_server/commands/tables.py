"""The tables of commands, one row each, of their events, which is append-only, and of receipts."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows by itself only in a column of the type INTEGER."""

commands = sa.Table(
    "commands",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer),  # of the alert that asked; null if a person did
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("action", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("requested_by", sa.String(256), nullable=False),
    sa.Column("automatic", sa.Boolean, nullable=False),
    sa.Column("alert_id", sa.String(26)),
    sa.Column("action_index", sa.Integer),  # place among the actions of the alert's rule
    sa.Column("after_id", sa.String(26)),  # waits until that command has been applied
    sa.Column("idempotency_key", sa.String(256)),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("ended_step", sa.BigInteger),
    sa.Column("detail", sa.Text, nullable=False),  # JSON; of the receipt that ended it
    sa.Column("signature", sa.String(64)),  # null if the attempt was given no secret
    # One command for each action of an alert, however often the alert is evaluated or rebuilt.
    sa.UniqueConstraint("run_id", "alert_id", "action_index", name="uq_commands_action"),
    sa.UniqueConstraint("run_id", "idempotency_key", name="uq_commands_idempotency"),
    sa.Index("ix_commands_id", "id"),
    sa.Index("ix_commands_state", "state"),
)

command_receipts = sa.Table(
    "command_receipts",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("command_id", sa.String(26), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Column("at", sa.Double, nullable=False),
)

command_events = sa.Table(
    "command_events",
    metadata,
    sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(26), nullable=False),
    sa.Column("command_id", sa.String(26), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),  # a CommandState
    sa.Column("rank", sa.Integer),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Index("ix_command_events_command", "run_id", "command_id", "number"),
    sqlite_autoincrement=True,  # numbers are never used again: streams resume by them
)
