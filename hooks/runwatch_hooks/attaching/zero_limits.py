"""What the hook cannot do under DeepSpeed's ZeRO. `attach` refuses such options."""

from collections.abc import Sequence

from runwatch_hooks.errors import AttachError
from runwatch_hooks.ranks.shards import ZeroOptimizer, is_offloaded, keeps_parameters
from runwatch_hooks.settings.options import Options


def check_zero(optimizers: Sequence[ZeroOptimizer], options: Options) -> None:
    """Raises AttachError if an option cannot be honoured with one of these optimizers."""
    for optimizer in optimizers:
        objection = _objection_to(optimizer, options)
        if objection:
            raise AttachError(objection)


def _objection_to(zero: ZeroOptimizer, options: Options) -> str:
    """The first objection; empty if there is none."""
    name = type(zero).__name__
    if is_offloaded(zero):
        return f"optimizer: found {name} with its states offloaded, wanted them on the device"
    if options.guard:
        return f"guard: {name} steps pieces of parameters: each rank would decide by its own"
    if options.max_overhead is not None:
        return f"max_overhead: {name} steps pieces of parameters, which are read at every step"
    if options.bundles is not None:
        return f"bundles: {name} steps pieces of parameters, of which no step can be replayed"
    if keeps_parameters(zero):
        return ""
    if "rollback" in options.allow:
        return f"allow: found rollback, and {name} (stage 3) has no parameters to put back"
    if options.checkpoints is not None:
        return f"checkpoints: {name} (stage 3) has no parameters to save, wanted DeepSpeed's own"
    return ""
