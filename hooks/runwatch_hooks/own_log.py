"""The hook's log messages: each begins with "runwatch:", and none raises into the program."""

import logging
from collections.abc import MutableMapping
from typing import Any

from runwatch_hooks.signals import is_of_a_signal


class OwnLog(logging.LoggerAdapter[logging.Logger]):
    """A module's logger. The prefix is part of the message because the program chooses handlers
    and format, and its format may not show a logger's name."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

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
