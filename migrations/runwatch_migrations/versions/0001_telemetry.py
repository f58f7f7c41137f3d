"""Keys, runs, attempts and telemetry."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(8), primary_key=True),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("project", sa.String(256)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("created_by", sa.String(256), nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("policy", sa.String(16)),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.Column("current_attempt", sa.Integer, nullable=False),
        sa.Column("last_step", sa.BigInteger),
    )
    op.create_index("ix_runs_project", "runs", ["project", "id"])
    op.create_index("ix_runs_state", "runs", ["state", "id"])
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("live", sa.Boolean, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("opened_at", sa.Double, nullable=False),
        sa.Column("resume_step", sa.BigInteger, nullable=False),
        sa.Column("world_size", sa.Integer, nullable=False),
        sa.Column("allow", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("closed_at", sa.Double),
        sa.Column("status", sa.String(16)),
        sa.Column("reason", sa.Text),
        sa.Column("last_step", sa.BigInteger),
        sa.UniqueConstraint("run_id", "token", name="uq_attempts_token"),
    )
    op.create_table(
        "layouts",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "frames",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("segment", sa.Integer, nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("num_steps", sa.Integer, nullable=False),
        sa.Column("layout_hash", sa.String(64), nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
        sa.Column("received_at", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ix_frames_steps", "frames", ["run_id", "attempt", "rank", "segment", "first_step"]
    )
    op.create_table(
        "streams",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_seq", sa.BigInteger, nullable=False),
        sa.Column("max_seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "segments",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("rolled_to", sa.BigInteger, nullable=False),
        sa.Column("raw_from", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "rollups",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("layout_hash", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(256), primary_key=True),
        sa.Column("layer_tile", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("level", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first_step", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "metrics",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("name", sa.String(256), primary_key=True),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(26), primary_key=True),
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("segment", sa.Integer, nullable=False),
        sa.Column("step", sa.BigInteger),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("ix_events_kind", "events", ["run_id", "kind", "id"])


def downgrade() -> None:
    for table in (
        "events",
        "metrics",
        "rollups",
        "segments",
        "streams",
        "frames",
        "layouts",
        "attempts",
        "runs",
        "api_keys",
    ):
        op.drop_table(table)
