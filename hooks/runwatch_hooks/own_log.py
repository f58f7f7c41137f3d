"""The hook's log messages: each begins with "runwatch:", and none raises into the program."""

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from runwatch.terminal_text import readable_line
from runwatch_hooks.signals import is_of_a_signal

_LONGEST: Final = 300
"""Letters of a text from elsewhere: enough for what a service of ours ever says."""
_MINUTE_S: Final = 60.0


def from_elsewhere(text: str) -> str:
    """A text that came over the network, as the log may hold it: one line, of at most 300 letters,
    without characters that command a terminal."""
    return readable_line(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


class OwnLog(logging.LoggerAdapter[logging.Logger]):
    """A module's logger. The prefix is part of the message because the program chooses handlers
    and format, and its format may not show a logger's name."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.getLogger(name), {})
        self._clock = clock
        self._minutes: dict[str, tuple[float, int]] = {}
        """By message: when its minute began, and how often it came since."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return f"runwatch: {msg}", kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; the methods for each level come here too. If one of the program's handlers
        raises, as one whose file was closed may, the message is lost: a training is worth more."""
        stacklevel = kwargs.pop("stacklevel", 1) + 1  # the place shown is that of the caller
        try:
            super().log(level, msg, *args, stacklevel=stacklevel, **kwargs)
        except Exception as error:
            if is_of_a_signal(error):
                raise

    def seldom(self, level: int, msg: str, *args: object, most: int = 1) -> None:
        """Log a message that somebody else can cause: at most `most` times a minute. How many were
        left out is said with the next one."""
        now = self._clock()
        began, num = self._minutes.get(msg, (now, 0))
        num_left_out = 0
        if now - began >= _MINUTE_S:
            began, num, num_left_out = now, 0, max(num - most, 0)
        self._minutes[msg] = began, num + 1
        if num < most:
            more = f" ({num_left_out} more like it were left out)" if num_left_out else ""
            self.log(level, f"{msg}{more}", *args, stacklevel=2)
