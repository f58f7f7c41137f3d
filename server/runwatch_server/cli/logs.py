"""How a service logs: with colours on a terminal, else as plain lines for log collectors."""

import logging
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.logging import RichHandler

from runwatch.terminal_text import readable, readable_line

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(console: Console, *, quiet: bool) -> None:
    """`quiet` logs warnings and errors only."""
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO,
        format="%(name)s: %(message)s",
        handlers=[
            RichHandler(console=console, show_path=False)
            if console.is_terminal
            else _line_handler(console)
        ],
    )
    for noisy in ("alembic", "apscheduler", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # The app logs its failures itself; uvicorn would log them again, with the traceback.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)


class LineFormatter(logging.Formatter):
    """`2026-01-31T10:20:30.123Z WARNING module: message`: one line per record, in UTC.

    A newline in a message becomes `?`, so that no run's name can fake a line. A traceback follows
    on lines of its own.
    """

    def __init__(self) -> None:
        super().__init__(_LINE)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        return f"{moment.isoformat(timespec='milliseconds')}Z"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return readable_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return readable(super().format(record))


def _line_handler(console: Console) -> logging.Handler:
    handler = logging.StreamHandler(console.file)
    handler.setFormatter(LineFormatter())
    return handler
