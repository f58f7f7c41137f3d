"""How `runwatch run` talks to the service that its job reports to."""

from dataclasses import dataclass
from typing import Final, TypeVar

import httpx
import msgspec

from runwatch.addresses import without_user
from runwatch_server.cli.client import key_headers

_ASK_S: Final = 10.0

_Facts = TypeVar("_Facts")


@dataclass(frozen=True, slots=True)
class JobService:
    """The service's address, and the keys of the job and of ourselves."""

    url: str
    token: str
    """The job's key."""
    own_key: str
    """Our key, to find and name the run; the job's if there is no other."""
    how_to_open: str

    @property
    def address(self) -> str:
        """The address to show, without user and password."""
        return without_user(self.url)

    def ask(
        self, method: str, path: str, body: dict[str, str] | None = None, *, as_job: bool = False
    ) -> httpx.Response:
        """The service's answer, whatever it is. Raises httpx.HTTPError if there is none within ten
        seconds, and KeyTextError."""
        token = self.token if as_job else self.own_key
        return httpx.request(
            method,
            f"{self.url.rstrip('/')}/api/v1{path}",
            headers=key_headers(token),
            json=body,
            timeout=_ASK_S,
            trust_env=not self.url.startswith("http://127.0.0.1"),  # not reached through a proxy
        )

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
