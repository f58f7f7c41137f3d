"""The hook inside the trainer: it measures, streams, and carries out commands.

`attach` needs torch, so it is imported on first use. Programs without torch use
`runwatch_hooks.plain`.
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
    try:
        return import_module("runwatch_hooks.attaching").attach
    except AttributeError as error:  # of which Python would say only that `attach` is not there
        raise ImportError(f"cannot import attach: AttributeError: {error}") from error
