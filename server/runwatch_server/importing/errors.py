"""What is wrong with a log that cannot be read."""

from runwatch.errors import InvalidInputError


class LogError(InvalidInputError):
    """A file that is no log, or a broken one: the place, what was found, what was wanted."""

    code = "invalid_log"

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}" if place else message)
