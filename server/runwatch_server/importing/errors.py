"""The error of a log that cannot be read."""

from runwatch.errors import InvalidInputError


class LogError(InvalidInputError):
    """A file that is not a log, or a broken one: names the place, what was found and what was
    wanted."""

    code = "invalid_log"

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}" if place else message)
