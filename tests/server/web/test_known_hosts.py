"""The hosts that requests may be addressed to: names of ours, and addresses."""

from pathlib import Path

import pytest
from tests.server.harness import Api, serve

from runwatch_server.errors import SettingsError
from runwatch_server.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "[::1]:8321", "10.0.0.5:8321", "[fd00::2]"])
async def test_an_address_is_no_name_that_could_be_rebound(api: Api, host: str) -> None:
    """A load balancer's check of each replica, and a service that listens on ::1."""
    assert (await api.http.get("/readyz", headers={"Host": host})).status_code == 200


async def test_a_request_without_a_host_comes_from_no_browser(api: Api) -> None:
    assert (await api.http.get("/readyz", headers={"Host": ""})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example.",
        "127.0.0.1.evil.example",
        "127.0.0.1:evil.example",
        "[::1].evil.example",
        "[localhost]",
        "x@127.0.0.1",
        "127.0.0.1/x",
        "[::1",
    ],
)
async def test_any_other_host_is_refused_by_name(api: Api, host: str) -> None:
    refused = await api.http.get("/readyz", headers={"Host": host})

    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_host")
    assert f"Host: found '{host}'" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("Runwatch.Example:443", 200),
        ("runwatch.example.", 200),
        ("a.below.example.:8321", 200),
        ("a.below.example", 200),
        ("below.example", 400),
        ("www.runwatch.example", 400),
    ],
)
async def test_names_and_patterns_of_the_settings_are_known(
    tmp_path: Path, host: str, status: int
) -> None:
    hosts = ("runwatch.example", "*.below.example")
    async with serve(tmp_path, allowed_hosts=hosts) as api:
        answer = await api.http.get("/readyz", headers={"Host": host})

    assert answer.status_code == status


@pytest.mark.parametrize(
    "host", ["https://a.example", "a.example:8321", "a.*", "*a.example", "a/b"]
)
def test_a_host_that_no_request_is_addressed_to_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(SettingsError, match=r"allowed_hosts: found .* wanted a name"):
        Settings(allowed_hosts=(host,))


@pytest.mark.parametrize("host", ["a.example", "*.example", "*", "10.0.0.5", "fd00::2"])
def test_names_patterns_and_addresses_can_be_allowed(host: str) -> None:
    assert host in Settings(allowed_hosts=(host,)).trusted_hosts
