"""Announces news of alerts: a line of the log for each that fires or is over, and a wake-up of open
event streams."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakSet

from runwatch.alerts import AlertState
from runwatch_server.alerts.recording.transitions import News
from runwatch_server.alerts.records import Resolution

log = logging.getLogger(__name__)

_TOLD: Final = (AlertState.FIRING, AlertState.RESOLVED)


def _announce_in_log(one: News) -> None:
    """A warning if people are notified for the first time. An alert that comes back before it is
    over is told quietly: a loss that oscillates around a rule's level crosses it many times."""
    alert = one.alert
    did_recover = alert.resolution in (None, Resolution.RECOVERED)
    log.log(
        logging.WARNING if one.acts else logging.INFO,
        "alert %s %s at step %d of run %s (%s): %s",
        alert.rule,
        alert.state if did_recover else f"{alert.state} ({alert.resolution})",
        one.step,
        alert.run_id,
        alert.severity,
        alert.facts.summary,
    )


class Announcer:
    """Announces what has been committed; holds nothing that must survive a restart."""

    def __init__(self, *, announce: Callable[[], None] = lambda: None) -> None:
        self._announce = announce
        self._waiting: WeakSet[asyncio.Event] = WeakSet()
        self.is_open = True
        self.transitions: Counter[tuple[str, str]] = Counter()
        """Number of transitions for each rule and state since the start."""

    def post(self, news: Sequence[News]) -> None:
        for one in news:
            is_change = one.before is not one.alert.state
            self.transitions[one.alert.rule, one.alert.state] += is_change
            if one.acts or (is_change and one.alert.state in _TOLD):
                _announce_in_log(one)
        self.wake()

    def wake(self) -> None:
        """Wake those who wait for news, here and at the other replicas."""
        self.wake_here()
        self._announce()

    def wake_here(self) -> None:
        for event in tuple(self._waiting):
            event.set()

    def close(self) -> None:
        """Release those who wait, because the service is about to stop."""
        self.is_open = False
        self.wake_here()

    def waiter(self) -> asyncio.Event:
        """An event to take before looking for news, so that none is missed between looking and
        waiting."""
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    async def wait(self, waiter: asyncio.Event, wait_s: float) -> bool:
        """Wait at most `wait_s` seconds; whether there may be news."""
        try:
            async with asyncio.timeout(wait_s):
                await waiter.wait()
        except TimeoutError:
            return False
        return True
