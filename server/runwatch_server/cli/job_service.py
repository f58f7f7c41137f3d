"""The service that a job reports to, as `runwatch run` speaks with it."""

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
    """Where the job reports, and as whom we and it speak."""

    url: str
    token: str
    """The job's."""
    own_key: str
    """Ours, to name and to find the run; the job's, where there is no other."""
    how_to_look: str

    @property
    def address(self) -> str:
        """To be shown: without a user and a password."""
        return without_user(self.url)

    def ask(
        self, method: str, path: str, body: dict[str, str] | None = None, *, as_job: bool = False
    ) -> httpx.Response:
        """Its answer, whatever that is. Raises httpx.HTTPError where there is none within ten
        seconds, and KeyTextError."""
        token = self.token if as_job else self.own_key
        return httpx.request(
            method,
            f"{self.url.rstrip('/')}/api/v1{path}",
            headers=key_headers(token),
            json=body,
            timeout=_ASK_S,
            trust_env=not self.url.startswith("http://127.0.0.1"),  # no proxy leads there
        )

    def look(self, path: str, kind: type[_Facts]) -> _Facts | None:
        """What it says there; None where it refuses, or where another program answers. Raises as
        `ask` does."""
        answer = self.ask("GET", path)
        if not answer.is_success:
            return None
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return None
