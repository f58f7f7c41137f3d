"""Connections through the HTTP proxy of the environment, as other programs use it."""

from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import make_headers

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
