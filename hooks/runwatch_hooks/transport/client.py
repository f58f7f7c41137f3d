"""A small HTTP client with bounded replies and times."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError

from runwatch import __version__
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.errors import RetryLaterError
from runwatch_hooks.transport.proxies import pool_to
from runwatch_hooks.transport.settings import TransportSettings

log = OwnLog(__name__)

MAX_REPLY_BYTES: Final = 4 * 2**20
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    content_type: str
    retry_after: str | None
    location: str | None
    """The target of a redirect."""


class Client:
    """Keeps connections alive. Does not follow redirects, which could send the token elsewhere.

    Safe to use from several threads.
    """

    def __init__(
        self, url: str, token: str | None, *, connect_timeout_s: float, read_timeout_s: float
    ) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        headers = {"User-Agent": f"runwatch-hook/{__version__}", "Accept": JSON}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._pool = pool_to(self._base, headers)

    @classmethod
    def of(cls, settings: TransportSettings) -> "Client | None":
        """A client for the settings' service; None if they have no URL."""
        if settings.url is None:
            return None
        return cls(
            settings.url,
            settings.token,
            connect_timeout_s=settings.connect_timeout_s,
            read_timeout_s=settings.read_timeout_s,
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        wait_s: float = 0.0,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Reply:
        """One request; `wait_s` is how long the service was asked to hold its reply.

        All requests of the hook are idempotent. So one that finds its idle connection closed
        (uvicorn does that after 5 s) is repeated at once on a new one. Raises RetryLaterError if
        there is no answer.
        """
        try:
            try:
                return self._exchange(method, path, body, content_type, wait_s, headers)
            except ProtocolError:
                return self._exchange(method, path, body, content_type, wait_s, headers)
        except LocationParseError:  # its text contains the address, which may contain secrets
            raise RetryLaterError(f"{method} {path}: the address cannot be read") from None
        except HTTPError as error:
            raise RetryLaterError(f"{method} {path}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._pool.clear()

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        wait_s: float,
        also: Mapping[str, str],
    ) -> Reply:
        headers = {**self._pool.headers, **also}
        if body is not None:
            headers["Content-Type"] = content_type
        response = self._pool.request(
            method,
            self._base + path,
            body=body,
            headers=headers,
            redirect=False,
            preload_content=False,
            timeout=urllib3.Timeout(
                connect=self._connect_timeout_s, read=self._read_timeout_s + wait_s
            ),
        )
        return _read(response)


def _read(response: urllib3.BaseHTTPResponse) -> Reply:
    octets = response.read(MAX_REPLY_BYTES + 1)
    if len(octets) > MAX_REPLY_BYTES:
        response.close()
        raise RetryLaterError(f"reply: found more than {MAX_REPLY_BYTES} bytes")
    response.release_conn()
    return Reply(
        status=response.status,
        body=octets,
        content_type=response.headers.get("Content-Type", ""),
        retry_after=response.headers.get("Retry-After"),
        location=response.headers.get("Location"),
    )
