"""Imports every domain's tables, so that Alembic sees all of them in the metadata."""

from runwatch_server.alerts.tables import alerts
from runwatch_server.auth.tables import api_keys
from runwatch_server.commands.tables import commands
from runwatch_server.notify.tables import deliveries
from runwatch_server.replicas.tables import leases
from runwatch_server.retention.tables import run_retention
from runwatch_server.rules.tables import rules
from runwatch_server.runs.tables import runs
from runwatch_server.tables import metadata
from runwatch_server.telemetry.packs.tables import packs
from runwatch_server.telemetry.tables import frames

__all__ = [
    "alerts",
    "api_keys",
    "commands",
    "deliveries",
    "frames",
    "leases",
    "metadata",
    "packs",
    "rules",
    "run_retention",
    "runs",
]
