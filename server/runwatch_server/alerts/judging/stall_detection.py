"""Decides when a judging process counts as stuck."""

from typing import Final

LONGEST_S: Final = 60.0
"""Seconds: six times what the most expensive rules take for one question (`processes.py`)."""
LOOK_S: Final = 1.0
_LONGEST_LOOK_S: Final = 2 * LOOK_S
"""Looks further apart than this mean that the service itself was paused, and most likely the whole
machine with it."""
_MOST_DOUBLINGS: Final = 4
_FORGIVEN_S: Final = 86_400.0
"""Seconds without a stuck process after which the first wait holds again: the doublings are for one
slow spell, and would otherwise leave a service of months blind for sixteen minutes at a time."""


class StallDetector:
    """Looks once a second at what a process is doing, and says when that has taken too long.

    Each time it has, the next limit is twice as long, up to sixteen minutes: on a machine where a
    question really takes a minute, every attempt would otherwise be given up.
    """

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self.longest_s = longest_s
        self._first_s = longest_s
        self._most_s = longest_s * 2**_MOST_DOUBLINGS
        self._since: float | None = None
        self._looked = 0.0
        self._seen_s = 0.0
        self._over_at = 0.0

    def is_stalled(self, since: float | None, now: float) -> bool:
        """Whether the work that began at `since` has been seen to take too long."""
        if since is None or since != self._since:
            self._since, self._seen_s = since, 0.0
        else:
            self._seen_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        if now - self._over_at >= _FORGIVEN_S:
            self.longest_s = self._first_s
        return self._seen_s >= self.longest_s

    def restart(self) -> None:
        """A new process has replaced the one that was stuck."""
        self._since, self._seen_s, self._over_at = None, 0.0, self._looked
        self.longest_s = min(2 * self.longest_s, self._most_s)
