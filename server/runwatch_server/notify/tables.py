"""Tables of notifications: what is to be sent, what was sent to whom, and what is silenced."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

notices = sa.Table(
    "notices",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("alert_id", sa.String(26), primary_key=True),
    sa.Column("fired_at", sa.Double, nullable=False),
    sa.Column("layer_group", sa.String(256), nullable=False),  # empty: not about layers
    sa.Column("resolved_at", sa.Double),
    sa.Column("times", sa.Integer),  # how often it has occurred; null: once
    sa.Column("settles_step", sa.BigInteger),  # its end is sent then; null: sent, or not over
    sa.Index("ix_notices_alert", "alert_id"),
    sa.Index("ix_notices_resolved", "resolved_at"),
    sa.Index("ix_notices_settling", "settles_step"),
)
"""One row per alert that people are notified of, written in the transaction that changed the alert.
Times are by the service's clock; those of an alert are by the trainer's."""

IS_SETTLING = notices.c.settles_step >= 0
"""Whether its end waits. Written as a range, because for `IS NOT NULL` SQLite reads the whole
table."""

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("run_id", sa.String(26), nullable=False),
    sa.Column("alert_id", sa.String(26), nullable=False),
    sa.Column("project", sa.String(256), nullable=False),
    sa.Column("receiver", sa.String(64), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),  # firing or resolved
    sa.Column("dedup_key", sa.String(64), nullable=False),  # id of the group's first alert
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("due_at", sa.Double, nullable=False),  # next try, or next repeat if delivered
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("first_failed_at", sa.Double),
    sa.Column("delivered_at", sa.Double),
    sa.Column("error", sa.Text),
    sa.UniqueConstraint("run_id", "alert_id", "receiver", "kind", name="uq_deliveries_once"),
    sa.Index("ix_deliveries_due", "receiver", "state", "due_at"),
    sa.Index("ix_deliveries_incident", "receiver", "dedup_key"),
    sa.Index("ix_deliveries_created", "created_at"),
    sqlite_autoincrement=True,
)
"""The outbox: one row for each alert, receiver and kind of news."""

silences = sa.Table(
    "silences",
    metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("project", sa.String(256), nullable=False),  # empty: every project
    sa.Column("matchers", sa.Text, nullable=False),  # JSON
    sa.Column("starts_at", sa.Double, nullable=False),
    sa.Column("ends_at", sa.Double, nullable=False),
    sa.Column("author", sa.String(256), nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    # JSON, with the time from which it recurs. The `starts_at` of a recurring silence is its end,
    # so that a replica of the previous version does not take it for one long silence.
    sa.Column("recurs", sa.Text),
    sa.Index("ix_silences_end", "ends_at"),
)
