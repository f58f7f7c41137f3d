"""The guard over the connections of receivers, where no receiver is at work."""

import subprocess
import sys
from ipaddress import ip_network
from typing import Final

import pytest
from tests.waiting import LONGEST_S

from runwatch_server.notify.networks import may_connect

_ENDS_WITH_AN_EVENT: Final = """
import sys
from runwatch_server.notify import networks

class Late:
    def __del__(self):
        sys.audit("after the module's own names are gone")

with networks.guarded_by(networks.ConnectionGuard(())):
    pass
networks.late = Late()
"""


def test_the_guard_says_nothing_as_the_interpreter_ends() -> None:
    """Its hook can never be removed, and outlives the names of its module."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS_WITH_AN_EVENT],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255"),
        *("192.0.0.8", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "4000::1"),
        *("::127.0.0.1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1"),  # IPv4-compatible and -mapped
        *("64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::a9fe:a9fe"),  # NAT64
        *("2002:7f00:1::", "2002:a00:1::1", "2001:0:7f00:1::"),  # 6to4 and Teredo
        *("", "localhost", "127.1"),
    ],
)
def test_refuse_address_that_is_not_public(address: str) -> None:
    assert not may_connect(address, ())


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"],
)
def test_allow_public_address(address: str) -> None:
    assert may_connect(address, ())


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"])
def test_allow_private_address_of_an_allowed_network(address: str) -> None:
    assert may_connect(address, [ip_network("10.0.0.0/8")])
