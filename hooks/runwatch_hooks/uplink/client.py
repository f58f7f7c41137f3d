"""A small HTTP client with bounded replies and times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError
from urllib3.util import make_headers

from runwatch import __version__
from runwatch.addresses import fault_of
from runwatch.errors import InvalidInputError, RunwatchError
from runwatch.key_texts import fault_of_key
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)

_LOOPBACK: Final = ("localhost", "::1")


def pool_to(url: str, headers: dict[str, str]) -> urllib3.PoolManager:
    """A pool of at most two connections to a service, through the environment's proxy if any."""
    proxy = proxy_to(url)
    if proxy is not None:
        try:
            return urllib3.ProxyManager(
                proxy,
                num_pools=1,
                maxsize=2,
                headers=headers,
                proxy_headers=_credentials(proxy),
                retries=False,
                timeout=None,
            )
        except (HTTPError, ValueError):  # their text may contain a password
            scheme = proxy.partition("://")[0]
            log.warning(
                "the environment's proxy (%s://...) has a scheme that is not supported", scheme
            )
    return urllib3.PoolManager(num_pools=1, maxsize=2, headers=headers, retries=False, timeout=None)


def proxy_to(url: str) -> str | None:
    """The proxy for an address by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY. Never one for
    this machine itself."""
    place = urlsplit(url)
    host = place.hostname or ""
    if (
        host in _LOOPBACK
        or host.startswith("127.")
        or proxy_bypass(place.netloc.rpartition("@")[2])
    ):
        return None
    proxies = getproxies()
    proxy = proxies.get(place.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def _credentials(proxy: str) -> dict[str, str]:
    """The header for a user and password in the proxy's address; empty without."""
    place = urlsplit(proxy)
    if place.username is None:
        return {}
    pair = f"{unquote(place.username)}:{unquote(place.password or '')}"
    return dict(make_headers(proxy_basic_auth=pair))


class UplinkError(RunwatchError):
    """A request that did not succeed.

    Errors of requests to the service.

    UplinkError (RunwatchError)
    ├── RetryLaterError      no service there, overloaded, or a reply that cannot be understood
    ├── ForbiddenError       401, 403: the key is not valid for this run
    └── RefusedError         any other 4xx: asking again would not help
        ├── StaleAttemptError    a newer attempt of the run has begun, or the run has ended
        ├── UnknownAttemptError  the service does not know the attempt's token
        └── UnknownLayoutError   the service does not know the frame's layout
    """


class RetryLaterError(UplinkError):
    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ForbiddenError(UplinkError):
    pass


class RefusedError(UplinkError):
    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class StaleAttemptError(RefusedError):
    pass


class UnknownAttemptError(RefusedError):
    pass


class UnknownLayoutError(RefusedError):
    pass


_LARGEST_SEGMENT_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class UplinkSettings:
    """Settings of one `Uplink`. Raises InvalidInputError for a value that cannot work."""

    url: str | None = field(default=None, repr=False)
    """Address of the service, such as `https://runwatch.example:8080`; None: spool only."""
    token: str | None = field(default=None, repr=False)
    """An API key with the scope `ingest`. Never logged."""
    spool_dir: Path
    """Each rank of an attempt creates a folder of its own below it."""
    queue_bytes: int = 64 * 2**20
    """Limit on rows that the sender has not taken yet, and on frames in memory while the disk is
    full."""
    spool_bytes: int = 2**30
    """Limit on frames on disk: weeks of a small model, a night of a large one."""
    min_free_bytes: int = 256 * 2**20
    """The spool leaves at least this much of the disk free, for the trainer's own checkpoints."""
    send_interval_s: float = 0.2
    """Steps that end within it are sent in one frame; an urgent row does not wait for it."""
    calm_interval_s: float = 1.0
    """The interval for a run in which nothing urgent has happened for some seconds."""
    heartbeat_s: float = 10.0
    stall_s: float = 40.0
    """A step that takes longer, and far longer than any before, is told with its stack. Shorter
    than the minute after which StepOverdue fires, so that the alert can say where."""
    long_poll_s: float = 25.0
    """How long the service may hold a poll: less than the 60 s at which proxies time out."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.url is not None and (fault := fault_of(self.url)):
            raise InvalidInputError(f"url: {fault}")
        if self.token is not None and (fault := fault_of_key(self.token)):
            raise InvalidInputError(f"token: {fault}")
        _check("queue_bytes", self.queue_bytes, 2**16)
        _check("spool_bytes", self.spool_bytes, 2**16)
        _check("send_interval_s", self.send_interval_s, 0.001)
        _check("calm_interval_s", self.calm_interval_s, 0.001)
        _check("stall_s", self.stall_s, 0.001)
        _check("heartbeat_s", self.heartbeat_s, 0.001)
        _check("long_poll_s", self.long_poll_s, 0.0)
        _check("connect_timeout_s", self.connect_timeout_s, 0.001)
        _check("read_timeout_s", self.read_timeout_s, 0.001)

    @property
    def segment_bytes(self) -> int:
        """Size of a spool file. A full spool drops its oldest file, so there must be several."""
        return min(_LARGEST_SEGMENT_BYTES, self.spool_bytes // 8)


def _check(place: str, number: float, lowest: float) -> None:
    if not number >= lowest:
        raise InvalidInputError(f"{place}: found {number}, wanted at least {lowest}")


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
    def of(cls, settings: UplinkSettings) -> "Client | None":
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
