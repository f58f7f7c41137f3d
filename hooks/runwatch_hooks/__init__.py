"""The hook inside the trainer: measures, streams, and acts when told to.

`attach` comes with torch, and is imported when it is first asked for: `runwatch_hooks.plain` is for
programs without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runwatch_hooks.errors import AttachError
from runwatch_hooks.watch import StepReport, Watch

if TYPE_CHECKING:
    from runwatch_hooks.attaching import attach

__all__ = ["AttachError", "StepReport", "Watch", "attach"]


def __getattr__(name: str) -> Any:
    if name != "attach":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("runwatch_hooks.attaching").attach
