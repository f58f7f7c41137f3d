"""The environment's proxy on the way to a service, as every other program there goes by it."""

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
    """Connections to a service, two at most: by the environment's proxy, where it names one."""
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
        except (HTTPError, ValueError):  # whose words may repeat a password
            scheme = proxy.partition("://")[0]
            log.warning("the environment's proxy (%s://...) is of no kind known here", scheme)
    return urllib3.PoolManager(num_pools=1, maxsize=2, headers=headers, retries=False, timeout=None)


def proxy_to(url: str) -> str | None:
    """What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say of an address. None leads to this
    machine itself."""
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
    """A user and a password in its address, as the proxy is told them."""
    place = urlsplit(proxy)
    if place.username is None:
        return {}
    pair = f"{unquote(place.username)}:{unquote(place.password or '')}"
    return dict(make_headers(proxy_basic_auth=pair))
