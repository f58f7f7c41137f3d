"""The connection to the service: queue, spool and sender for rows, inbox for commands."""

from runwatch_hooks.transport.settings import TransportSettings
from runwatch_hooks.transport.transport import EndStatus, Transport

__all__ = ["EndStatus", "Transport", "TransportSettings"]
