"""Reports the optimizer steps that the guard turned into no-ops."""

from collections.abc import Iterable

from runwatch_hooks.reports import Reports
from runwatch_hooks.step.row import Row


class GuardedSteps:
    """Looks at finished rows, because on an accelerator a verdict arrives some steps later."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._was_guarded = False

    def look(self, rows: Iterable[Row]) -> None:
        """Report the first of consecutive steps, and each new level of the norms."""
        for row in rows:
            num_guarded = row.metrics.get("guarded_steps")
            if num_guarded is not None:
                if num_guarded > 0.0 and not self._was_guarded:
                    is_finite = row.metrics.get("guarded_outliers") == num_guarded
                    because = "outside its past" if is_finite else "not finite"
                    self._reports.tell_event(row.step, "guarded", row.at, {"because": because})
                self._was_guarded = num_guarded > 0.0
            if row.metrics.get("guard_relearned", 0.0) > 0.0:
                self._reports.tell_event(row.step, "guard_relearned", row.at, {})
