"""The connection to the service: queue, spool and sender for rows, inbox for commands."""

from runwatch_hooks.uplink.client import UplinkSettings
from runwatch_hooks.uplink.uplink import EndStatus, Uplink

__all__ = ["EndStatus", "Uplink", "UplinkSettings"]
