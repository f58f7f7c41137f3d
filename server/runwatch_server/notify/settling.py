"""One continuing trouble is told once: what comes back soon is the same trouble as before.

An alert that fires within `AGAIN_STEPS` of the end of one of its kind is that trouble's next
*time*. The end of its first is told at once; from the second on an alert that is over *settles*,
which means that its end is told once the run has been without it for `AGAIN_STEPS`. One that comes
meanwhile goes on with the incident, which receivers have open: they hear of its 4th, 8th and 16th
time, and not of each.

All this is about telling. Every alert is judged, kept, shown and acted upon by itself.
"""

from typing import Final

from runwatch_server.alerts.records import AlertRecord, Resolution
from runwatch_server.notify.records import TimeBefore

AGAIN_STEPS: Final = 512
"""Well above what a fault of the data leaves between two visits, at a batch in so many; a run that
has been sound for so long has got over it."""
LONGEST_S: Final = 4 * 3600.0
"""An end is told after so long, also of a run that makes no steps or very slow ones."""
LASTING_S: Final = 900.0
"""Who was not told of a time of its own is, should it last so long: this one does not pass."""


def is_soon(before: TimeBefore, firing_step: int) -> bool:
    """Whether what fires is the same trouble still. A rollback takes the run to steps that lie
    before the end of the last: what comes back there is."""
    return firing_step - before.resolved_step <= AGAIN_STEPS


def settles_at(alert: AlertRecord, times: int) -> int | None:
    """The step at which the end of an alert is told; None: at once."""
    if times < 2 or alert.resolution is not Resolution.RECOVERED or alert.resolved_step is None:
        return None
    return alert.resolved_step + AGAIN_STEPS


def is_milestone(times: int) -> bool:
    """Whether those who have the incident open hear of this time: of twice as many each time."""
    return times & (times - 1) == 0
