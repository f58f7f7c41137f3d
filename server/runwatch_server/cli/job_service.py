"""How `runwatch run` talks to the service that its job reports to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx
import msgspec

from runwatch.addresses import without_user

_ASK_S: Final = 10.0

_Facts = TypeVar("_Facts")


@dataclass(frozen=True, slots=True)
class JobService:
    """The service's address, and how the job and we speak to it."""

    url: str
    token: str
    """The job's key."""
    http: httpx.Client
    """With our key: kept open, for the sake of the training beside us."""
    link_to: Callable[[str], str]
    """Where to see a page."""
    data_dir: Path | None = None
    """That of a service which ends with the job."""

    @property
    def address(self) -> str:
        """The address to show, without user and password."""
        return without_user(self.url)

    def ask(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """The service's answer, whatever it is. Raises httpx.HTTPError if there is none within ten
        seconds."""
        return self.http.request(method, path, headers=headers, json=body, timeout=_ASK_S)

    def get(self, path: str, kind: type[_Facts]) -> _Facts | None:
        """The decoded answer; None if the service refuses or another program answers. Raises as
        `ask` does."""
        answer = self.ask("GET", path)
        if not answer.is_success:
            return None
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return None
