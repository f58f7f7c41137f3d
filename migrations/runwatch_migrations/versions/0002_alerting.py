"""Rules, alerts, progress of evaluation, commands and their receipts, and the audit log.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_rules()
    _create_alerts()
    _create_evaluations()
    _create_commands()
    _create_audit()


def downgrade() -> None:
    for table in (
        "audit",
        "command_events",
        "command_receipts",
        "commands",
        "rule_sets",
        "evaluations",
        "alert_events",
        "alerts",
        "rule_versions",
        "rules",
    ):
        op.drop_table(table)


def _number() -> sa.Column[int]:
    """A row number that is never reused (SQLite assigns numbers only to its own INTEGER)."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("number", kind, primary_key=True, autoincrement=True)


def _create_rules() -> None:
    op.create_table(
        "rules",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("updated_by", sa.String(256), nullable=False),
        sa.UniqueConstraint("project", "name", name="uq_rules_name"),
    )
    op.create_table(
        "rule_versions",
        sa.Column("rule_id", sa.String(26), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
    )


def _create_alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("episode", sa.String(64), nullable=False),
        sa.Column("rule", sa.String(256), nullable=False),
        sa.Column("rule_hash", sa.String(64), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("live", sa.Boolean, nullable=False),
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
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("acked_at", sa.Double),
        sa.Column("acked_by", sa.String(256)),
        sa.Column("ack_note", sa.Text),
        sa.Column("recovery", sa.String(16)),
        sa.Column("acted_step", sa.BigInteger),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("run_id", "episode", name="uq_alerts_episode"),
    )
    op.create_index("ix_alerts_id", "alerts", ["id"])
    op.create_index("ix_alerts_state", "alerts", ["state"])
    op.create_table(
        "alert_events",
        _number(),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("alert_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("step", sa.BigInteger),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alert_events_alert", "alert_events", ["run_id", "alert_id", "number"])


def _create_evaluations() -> None:
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("evaluated_seq", sa.BigInteger, nullable=False),
        sa.Column("state_seq", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.Column("rule_set", sa.String(64), nullable=False),
    )
    op.create_table(
        "rule_sets",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("documents", sa.Text, nullable=False),
    )


def _create_commands() -> None:
    op.create_table(
        "commands",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("segment", sa.Integer),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("requested_by", sa.String(256), nullable=False),
        sa.Column("automatic", sa.Boolean, nullable=False),
        sa.Column("alert_id", sa.String(26)),
        sa.Column("action_index", sa.Integer),
        sa.Column("after_id", sa.String(26)),
        sa.Column("idempotency_key", sa.String(256)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("ended_step", sa.BigInteger),
        sa.Column("detail", sa.Text, nullable=False),
        sa.UniqueConstraint("run_id", "alert_id", "action_index", name="uq_commands_action"),
        sa.UniqueConstraint("run_id", "idempotency_key", name="uq_commands_idempotency"),
    )
    op.create_index("ix_commands_id", "commands", ["id"])
    op.create_index("ix_commands_state", "commands", ["state"])
    op.create_table(
        "command_receipts",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("command_id", sa.String(26), primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "command_events",
        _number(),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("command_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("rank", sa.Integer),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_command_events_command", "command_events", ["run_id", "command_id", "number"]
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        _number(),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("actor", sa.String(256), nullable=False),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("about_run", sa.String(26)),
        sa.Column("deed", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(256), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
