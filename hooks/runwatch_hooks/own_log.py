"""What the hook writes into the trainer's log: each message says whose it is."""

import logging
from collections.abc import MutableMapping
from typing import Any


class OwnLog(logging.LoggerAdapter[logging.Logger]):
    """A module's logger. The log is the program's, and so are its handlers and their format, in
    which a logger's name need not show."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return f"runwatch: {msg}", kwargs
