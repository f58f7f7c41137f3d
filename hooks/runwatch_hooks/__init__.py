"""The hook inside the trainer: measures, streams, and acts when told to."""

from runwatch_hooks.attach import attach
from runwatch_hooks.errors import AttachError
from runwatch_hooks.watch import StepReport, Watch

__all__ = ["AttachError", "StepReport", "Watch", "attach"]
