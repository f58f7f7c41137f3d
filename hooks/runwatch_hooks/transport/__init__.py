"""From the training thread to the service, and back: queue, spool, sender, inbox."""

from runwatch_hooks.transport.settings import TransportSettings
from runwatch_hooks.transport.transport import EndStatus, Transport

__all__ = ["EndStatus", "Transport", "TransportSettings"]
