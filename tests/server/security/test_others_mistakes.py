"""What went wrong in other services of this kind: each case a test that it cannot happen here.

The rest of them stands beside what it is about: routes without a scope in auth/test_guard.py, keys
of another project in test_projects.py, receivers and rebinding in test_networks.py, CSRF and XSS of
the page in auth/test_sessions.py, bombs in telemetry/test_frames_api.py.
"""

import logging
from pathlib import Path

import pytest
from starlette.routing import Route
from tests.server.harness import Api, frame, new_id, serve

from runwatch_server.errors import SettingsError
from runwatch_server.settings import Settings

pytestmark = pytest.mark.anyio


async def test_no_route_is_outside_the_check(api: Api) -> None:
    """MLflow CVE-2026-2652, CVE-2026-0545: a middleware that looked at some prefixes only."""
    assert [route for route in api.app.routes if type(route) is Route] == []


async def test_two_first_starts_have_two_keys(tmp_path: Path) -> None:
    """MLflow CVE-2026-2635: a default password."""
    async with serve(tmp_path / "one") as one, serve(tmp_path / "two") as two:
        assert one.admin_key != two.admin_key
        assert (await two.call("GET", "/runs", key=one.admin_key)).status_code == 401


async def test_nobody_signs_up(api: Api) -> None:
    """MLflow CVE-2023-6014, CVE-2025-1473: accounts for whoever asks."""
    body = {"name": "me", "scopes": ["admin"]}

    assert (await api.call("POST", "/keys", json=body, key="")).status_code == 401
    reader = await api.new_key("read")
    assert (await api.call("POST", "/keys", json=body, key=reader)).status_code == 403


async def test_receivers_cannot_be_set_over_the_api(api: Api) -> None:
    """MLflow CVE-2026-2393, CVE-2026-64849: webhooks that users point into the network."""
    paths = api.app.openapi()["paths"]

    told = {path: sorted(methods) for path, methods in paths.items() if "receiver" in path}
    assert told == {
        "/api/v1/receivers": ["get"],
        "/api/v1/receivers/{name}/test": ["post"],  # sends to one that the file names
    }
    assert not [path for path in paths if "webhook" in path]


@pytest.mark.parametrize(
    "rule",
    [
        "loss.__class__ > 1",
        "__import__('os').system('id') > 1",
        "(lambda: loss)() > 1",
        "[x for x in (1,)][0] > loss",
        "f'{loss}' > 1",
        "loss[0] > 1",
    ],
)
async def test_a_rule_is_no_program(api: Api, rule: str) -> None:
    """Aim CVE-2024-2195, CVE-2025-5321: a query language that was Python."""
    document = {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "A", "when": rule}]}]}

    reply = await api.call("POST", "/rules", json=document)

    assert (reply.status_code, reply.json()["code"]) == (422, "invalid_rule")


async def test_a_message_of_a_rule_reaches_no_attribute(api: Api) -> None:
    """Aim CVE-2024-8238: attributes through format."""
    alert = {
        "alert": "A",
        "when": "loss > 1",
        "annotations": {"summary": "{value.__class__.__mro__}"},
    }
    document = {"version": 1, "groups": [{"name": "g", "rules": [alert]}]}

    assert (await api.call("POST", "/rules", json=document)).status_code == 422


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "a" * 5000])
async def test_a_name_is_never_a_path(api: Api, run_id: str) -> None:
    """Aim CVE-2024-6396, MLflow CVE-2023-1177 and its heirs: path traversal."""
    opened = await api.call("POST", "/runs", json={"run_id": run_id, "name": "a"})
    found = await api.call("GET", f"/runs/{run_id}")

    assert (opened.status_code, found.status_code) == (422, 404)


async def test_no_other_site_reads_the_api(api: Api) -> None:
    """Aim CVE-2024-7760: CORS for everybody."""
    headers = {"Origin": "https://evil.example"}

    reply = await api.call("GET", "/runs", headers=headers)
    preflight = await api.http.options(
        "/api/v1/runs", headers={**headers, "Access-Control-Request-Method": "DELETE"}
    )

    assert "access-control-allow-origin" not in reply.headers
    assert preflight.status_code == 405


async def test_every_answer_tells_a_browser_to_keep_its_hands_off(api: Api) -> None:
    """Aim CVE-2025-51464: what people write was run as a script."""
    paths = ("/api/v1/runs", "/healthz", "/nothing", "/metrics")
    replies = [await api.http.get(path) for path in paths]
    replies.append(await api.http.get("/healthz", headers={"Host": "evil.example"}))

    for reply in replies:
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["X-Frame-Options"] == "DENY"
        assert "default-src" in reply.headers["Content-Security-Policy"]
        assert "Strict-Transport-Security" not in reply.headers


async def test_a_service_with_tls_insists_on_it(tmp_path: Path) -> None:
    async with serve(tmp_path, behind_proxy=True) as api:
        reply = await api.http.get("/healthz")

    assert reply.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize("size", [2**20 + 1, 9 * 2**20])
async def test_a_body_has_a_limit(api: Api, size: int) -> None:
    """Aim CVE-2025-0189: a message size that was raised."""
    run = await api.call("POST", "/runs", content=b" " * size)
    sent = await api.post_body(new_id(), b"RWF1" + bytes(9 * 2**20))

    assert (run.status_code, sent.status_code) in ((413, 413), (413, 403), (413, 404))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "runwatch.example.com"])
def test_others_can_reach_it_over_tls_only(host: str) -> None:
    """TensorBoard #267: no authentication, and no word about it."""
    with pytest.raises(SettingsError, match="TLS"):
        Settings(host=host)


def test_an_address_to_listen_on_anywhere_is_no_name_of_ours() -> None:
    settings = Settings(host="0.0.0.0", behind_proxy=True, allowed_hosts=("a.example",))

    assert settings.trusted_hosts == ("localhost", "a.example")


async def test_no_key_stands_in_a_log_or_a_problem(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = (await api.new_key("read")).rpartition("_")[2]
    bad = f"runwatch_aaaaaaaa_{secret}"

    replies = [
        await api.call("GET", "/runs", key=bad),
        await api.call("GET", "/runs", key=bad + "\x7f"),
        await api.call("GET", f"/runs?token={bad}"),
        await api.call("POST", "/keys", content=f'{{"name": "{bad}"}}'),
    ]
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [1.0]))

    ours = [record for record in caplog.records if not record.name.startswith("httpx")]
    assert ours
    assert not [record for record in ours if secret in record.getMessage()]
    for reply in replies:
        assert reply.is_client_error
        assert secret not in reply.text


async def test_the_description_of_the_interface_loads_nothing_from_elsewhere(api: Api) -> None:
    page = await api.http.get("/docs")

    assert page.status_code == 200
    assert "/api/v1/runs/{run_id}/series" in page.text
    assert "https://" not in page.text


async def test_a_host_that_is_not_ours_is_refused_as_a_problem(api: Api) -> None:
    """DNS rebinding: a page elsewhere whose name leads to this machine."""
    reply = await api.http.get("/healthz", headers={"Host": "evil.example:8321"})

    assert (reply.status_code, reply.json()["code"]) == (400, "unknown_host")
    assert reply.headers["Content-Type"] == "application/problem+json"
