"""A service's address as it may be shown: whatever else stands in its place may be a secret.

A key that was given as the address, or an address with a password in it, would else stand in a
trainer's log for all who read that.
"""

import re
from typing import Final

_SCHEMES: Final = ("http://", "https://")
_SHOWABLE: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>.*)", re.DOTALL)
_BEYOND_ADDRESS: Final = re.compile(r"[?#]")
_HOST_AND_PORT: Final = re.compile(r"(\[[^\]]+\]|[^/:\s]+)(:(?P<port>\d{0,5}))?")
_LAST_PORT: Final = 65_535
_END_OF_AUTHORITY: Final = re.compile(r"[/?#]")
_END_OF_HOST: Final = re.compile(r"[:/?#\\\s]")


def is_address(text: str) -> bool:
    """Whether it begins as the address of a service does."""
    return text.startswith(_SCHEMES)


def host_of(text: str) -> str:
    """Scheme and host, such as `ftp://watch.example`; of a text without them no character.

    No user, password, port, path or question: each may be, or hold, a key. A password may hold
    any sign, so the host is what follows the last `@`.
    """
    found = _SHOWABLE.match(text)
    if found is None:
        return f"a text of {len(text)} characters without '://'"
    host = _END_OF_HOST.split(found["rest"].rpartition("@")[2], maxsplit=1)[0]
    return f"{found['scheme']}{host}"


def without_user(address: str) -> str:
    """An address that `attach` would take, whole but for a user and a password in it."""
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def place_of(address: str) -> str:
    """Scheme, hosts, ports and path of an address of any scheme, without user, password and what is
    behind a `?` or `#`. Of one in which a password may stand elsewhere, because a sign of it is not
    escaped, the scheme alone."""
    found = _SHOWABLE.match(address)
    if found is None:
        return host_of(address)
    authority = _END_OF_AUTHORITY.split(found["rest"], maxsplit=1)[0]
    behind = found["rest"].removeprefix(authority)
    hosts = authority.rpartition("@")[2]
    are_hosts = not hosts or all(_HOST_AND_PORT.fullmatch(host) for host in hosts.split(","))
    if "@" in behind or not are_hosts:
        return f"{found['scheme']}..."
    return f"{found['scheme']}{hosts}{_BEYOND_ADDRESS.split(behind, maxsplit=1)[0]}"


def fault_of(text: str) -> str:
    """Why a text is no service's address; empty where it may be one. Nothing of it is repeated but
    scheme and host: it may be a key that stands in its place."""
    if not is_address(text):
        return f"found {host_of(text)}, wanted http://... or https://..."
    if _BEYOND_ADDRESS.search(text):  # a login link, say, which holds a key
        return f"found more behind {host_of(text)}, wanted the address alone"
    behind = text.partition("://")[2]
    host, _, path = behind.partition("/")
    found = _HOST_AND_PORT.fullmatch(host.rpartition("@")[2])
    if found is None or int(found["port"] or 0) > _LAST_PORT or "@" in path:
        return f"found {host_of(text)} with a host or a port that cannot be, wanted HOST:PORT"
    return ""
