"""Hosts that requests are addressed to: as a setting names them, and in the header `Host`."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_NEVER_IN_A_NAME: Final = frozenset("*:/@?# ")


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
    """The host without its port, in small letters; empty if the header holds anything else."""
    try:
        parts = urlsplit(f"//{header}")
    except ValueError:
        return ""
    is_plain = parts.netloc == header and "@" not in header
    return (parts.hostname or "") if is_plain else ""
