"""Tables of alerts, and of how far each stream of frames has been evaluated."""

from typing import Final

import sqlalchemy as sa

from runwatch_server.tables import metadata

_ACKED: Final = sa.text("acked_at IS NOT NULL")
_LEFT: Final = (
    "resolution IN ('run_ended', 'settled_worse') AND severity != 'info' AND acked_at IS NULL "
    "AND inhibited_by IS NULL AND"
)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite assigns numbers by itself only to a column of type INTEGER."""

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("project", sa.String(256), nullable=False),
    sa.Column("episode", sa.String(64), nullable=False),
    sa.Column("rule", sa.String(256), nullable=False),
    sa.Column("rule_hash", sa.String(64), nullable=False),
    sa.Column("severity", sa.String(16), nullable=False),
    sa.Column("labels", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),  # false: judged from late frames
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("onset_step", sa.BigInteger, nullable=False),
    sa.Column("onset_at", sa.Double, nullable=False),
    sa.Column("firing_step", sa.BigInteger),
    sa.Column("firing_at", sa.Double),
    sa.Column("resolved_step", sa.BigInteger),
    sa.Column("resolved_at", sa.Double),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("facts", sa.Text, nullable=False),  # JSON: value, layers, texts (SQLite has no NaN)
    sa.Column("acked_at", sa.Double),
    sa.Column("acked_by", sa.String(256)),
    sa.Column("ack_note", sa.Text),
    sa.Column("recovery", sa.String(16)),  # null until a command has been applied
    sa.Column("acted_step", sa.BigInteger),  # the first trained after the command
    sa.Column("acted_segment", sa.Integer),
    sa.Column("rung", sa.Integer),  # the last one tried or skipped; null: none
    sa.Column("inhibited_by", sa.String(256)),  # the rule whose alert explains this one
    sa.Column("shadow", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("resolution", sa.String(32)),  # null while it is open
    sa.Column("created_at", sa.Double, nullable=False),
    # No duplicates: an episode is one alert, however often its frames are judged.
    sa.UniqueConstraint("run_id", "episode", name="uq_alerts_episode"),
    sa.Index("ix_alerts_id", "id"),
    # With the id, by which alerts are listed: a rare rule, or a small project, among many alerts.
    sa.Index("ix_alerts_rule", "rule", "id"),
    sa.Index("ix_alerts_project", "project", "id"),
    sa.Index("ix_alerts_severity", "severity", "id"),
    sa.Index("ix_alerts_acked", "id", sqlite_where=_ACKED, postgresql_where=_ACKED),
    sa.Index("ix_alerts_state", "state"),
    # What the overview of all runs counts, read from the index alone.
    sa.Index(
        "ix_alerts_left",
        *("run_id", "attempt", "severity"),
        sqlite_where=sa.text(f"{_LEFT} shadow = 0"),
        postgresql_where=sa.text(f"{_LEFT} NOT shadow"),
    ),
)

alert_events = sa.Table(
    "alert_events",
    metadata,
    sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.String(26), nullable=False),
    sa.Column("alert_id", sa.String(26), nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("step", sa.BigInteger),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("actor", sa.String(256), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Index("ix_alert_events_alert", "run_id", "alert_id", "number"),
    sqlite_autoincrement=True,  # numbers are never reused: streams resume by them
)

evaluations = sa.Table(
    "evaluations",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("evaluated_seq", sa.BigInteger, nullable=False),
    sa.Column(
        "state_seq", sa.BigInteger, nullable=False
    ),  # the frame after which `state` was taken
    sa.Column("state", sa.LargeBinary, nullable=False),
    sa.Column("rule_set", sa.String(64), nullable=False),
)
"""Written in the same transaction as the alerts, so that a killed service loses neither or both."""

passed_over = sa.Table(
    "passed_over",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
)
"""Frames that came after the watermark of their stream had passed them, and are still to be
judged."""

rule_sets = sa.Table(
    "rule_sets",
    metadata,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("documents", sa.Text, nullable=False),  # JSON
)
"""The rules with which a saved evaluator state was made, so that it can be rebuilt exactly."""
