"""Hosts that requests are addressed to: as a setting names them, and in the header `Host`."""

import re
from ipaddress import ip_address
from typing import Final

_NEVER_IN_A_NAME: Final = frozenset("*:/@?# ")
_HEADER: Final = re.compile(
    r"(?:\[(?P<address>[^][\s]+)\]|(?P<name>[^][:/@?#\\\s]+))(?::[0-9]*)?", re.ASCII
)
"""For the whole header: `urlsplit` finds a host in `[::1].example.com` and `127.0.0.1:x` too."""


def is_host_pattern(text: str) -> bool:
    """Whether it is a name, an IP address, `*.example.com` for all names below one, or `*`."""
    name = text.removeprefix("*.")
    is_name = bool(name) and not _NEVER_IN_A_NAME & set(name)
    return text == "*" or is_name or is_ip_address(text)


def is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def host_in(header: str) -> str:
    """The host without its port, in small letters, and without the dot that a name may end with;
    empty if the header holds anything else."""
    found = _HEADER.fullmatch(header)
    if found is None:
        return ""
    if address := found["address"]:
        return address.lower() if is_ip_address(address) else ""
    return found["name"].lower().removesuffix(".")
