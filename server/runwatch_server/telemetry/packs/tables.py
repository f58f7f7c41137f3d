"""Tables of the index of packs, and of the objects that it does not name."""

import sqlalchemy as sa

from runwatch_server.tables import metadata

packs = sa.Table(
    "packs",
    metadata,
    sa.Column("run_id", sa.String(26), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),  # with all in between
    sa.Column("segment", sa.Integer, nullable=False),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("object", sa.String(128), nullable=False),
    sa.Column("num_bytes", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),  # SHA-256 of the object
    sa.Column("packed_at", sa.Double, nullable=False),
    sa.Column("contents", sa.LargeBinary, nullable=False),  # packs.contents.Contents
    sa.Index("ix_packs_steps", "run_id", "attempt", "rank", "segment", "first_step"),
)

loose_objects = sa.Table(
    "loose_objects",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("noted_at", sa.Double, nullable=False),
    sa.Column("condemned", sa.Boolean, nullable=False),  # no pack may claim it any more
    sa.Index("ix_loose_objects_noted", "noted_at"),
)
"""Objects that are being written or that belonged to a pack; they are noted here before they exist,
and until they are gone."""
