"""Tables of telemetry: blocks as they were received, never one row per point."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

layouts = sa.Table(
    "layouts",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("document", sa.LargeBinary, nullable=False),  # zstd of JSON
    sa.Column("created_at", sa.Double, nullable=False),
)

frames = sa.Table(
    "frames",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("num_steps", sa.Integer, nullable=False),
    sa.Column("layout_hash", sa.String(64), nullable=False),
    sa.Column("checksum", sa.BigInteger, nullable=False),  # CRC-32 of the body as received
    sa.Column("late", sa.Boolean, nullable=False),
    sa.Column("received_at", sa.Double, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("ix_frames_steps", "run_id", "attempt", "rank", "segment", "first_step"),
)

streams = sa.Table(
    "streams",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("next_seq", sa.BigInteger, nullable=False),
    sa.Column("max_seq", sa.BigInteger, nullable=False),
)
"""One rank of an attempt; `next_seq` is the lowest sequence number that is not stored."""

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("rolled_to", sa.BigInteger, nullable=False),  # steps below it are in rollups
    sa.Column("raw_from", sa.BigInteger, nullable=False),  # frames below it were removed
)

rollups = sa.Table(
    "rollups",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("layout_hash", sa.String(64), primary_key=True),  # empty: a metric
    sa.Column("name", sa.String(256), primary_key=True),  # of the metric or stat
    sa.Column("layer_tile", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("level", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first_step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("name", sa.String(256), primary_key=True),
)
"""The names of the metrics that a run has sent."""

events = sa.Table(
    "events",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("step", sa.BigInteger),
    sa.Column("source", sa.String(16), nullable=False),  # trainer | service
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # JSON
    sa.Index("ix_events_kind", "run_id", "kind", "id"),
)

histograms = sa.Table(
    "histograms",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("segment", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("names", sa.LargeBinary, nullable=False),  # zstd of JSON
    sa.Column("packed", sa.LargeBinary, nullable=False),  # counts, as they came
)
"""Parts of a step's histograms, stored apart from the frame that brought them."""
