"""A recurring problem is reported once: an alert that comes back soon is the same problem as
before.

An alert that fires within `AGAIN_STEPS` of the end of an alert of its kind is the next *occurrence*
of that problem. The end of the first one is sent at once. From the second on, an alert that is over
*settles*: its end is sent once the run has been without it for `AGAIN_STEPS`. If another one comes
meanwhile, it continues the incident, which receivers have open: they are notified of its 4th, 8th
and 16th occurrence, and not of each.

This concerns notifications only. Every alert is judged, stored, shown and acted upon by itself.
"""

from typing import Final

from runwatch_server.alerts.records import AlertRecord, Resolution
from runwatch_server.notify.records import TimeBefore

AGAIN_STEPS: Final = 512
"""Far more steps than a fault in the data leaves between two visits, if it affects one batch in
that many. A run that has been healthy for that long has got over the problem."""
LONGEST_S: Final = 4 * 3600.0
"""Seconds after which an end is sent in any case, also if the run makes no steps or very slow
ones."""
LASTING_S: Final = 900.0
"""Seconds. Receivers that were not notified of an occurrence are if it lasts this long, because it
does not pass by itself."""


def is_soon(before: TimeBefore, firing_step: int) -> bool:
    """Whether the alert that fires is still the same problem. A rollback takes the run to steps
    before the end of the last occurrence; a problem that comes back there is the same one."""
    return firing_step - before.resolved_step <= AGAIN_STEPS


def settles_at(alert: AlertRecord, times: int) -> int | None:
    """The step at which the end of an alert is sent; None: at once."""
    if times < 2 or alert.resolution is not Resolution.RECOVERED or alert.resolved_step is None:
        return None
    return alert.resolved_step + AGAIN_STEPS


def is_milestone(times: int) -> bool:
    """Whether receivers that have the incident open are notified of this occurrence: only if its
    number is a power of two."""
    return times & (times - 1) == 0
