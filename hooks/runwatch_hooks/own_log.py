"""The hook's log messages: each begins with "runwatch:"."""

import logging
from collections.abc import MutableMapping
from typing import Any


class OwnLog(logging.LoggerAdapter[logging.Logger]):
    """A module's logger. The prefix is part of the message because the program chooses handlers
    and format, and its format may not show a logger's name."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return f"runwatch: {msg}", kwargs
