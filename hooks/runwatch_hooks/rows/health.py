"""Whether a step went well, by its row."""

import math

from runwatch_hooks.rows.row import Row


def is_broken(row: Row) -> bool:
    """Whether its loss or its gradients are not finite. That AMP skips a step is normal."""
    metrics = row.metrics
    if not math.isfinite(metrics.get("loss", 0.0)):
        return True
    num_nonfinite = metrics.get("nonfinite", metrics.get("local_nonfinite"))
    if num_nonfinite is None:  # gradients were not read: a clip coefficient of NaN or 0 still shows
        num_nonfinite = float(not metrics.get("clip_coef", 1.0) > 0.0)
    return num_nonfinite != 0.0 and metrics.get("skipped", 0.0) != 1.0


def is_healthy(row: Row) -> bool:
    """Whether the state after the step can be trusted: it is not broken, and that is known."""
    return not (row.is_lost or is_broken(row))
