"""The page's session: how it comes and goes, and what keeps other sites, and other users of the
host, from using it."""

import re

import pytest
from httpx import Response
from tests.server.harness import Api, HandClock

from runwatch_server.auth.sessions import SESSION_S

pytestmark = pytest.mark.anyio

OURS = {"Sec-Fetch-Site": "same-origin"}
BROWSER = {"Accept": "text/html"}
RULES = {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "A", "when": "loss > 1"}]}]}


async def log_in(api: Api, key: str, **form: str) -> Response:
    return await api.http.post("/login", data={"key": key, **form}, headers=OURS)


def page_secret(login: Response) -> dict[str, str]:
    """The header that the page's scripts send, of the answer to a login."""
    found = re.search(r'data-page-secret="([^"]+)"', login.text)
    assert found is not None, login.text
    return {"X-Page-Secret": found[1]}


async def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_can_use(api: Api) -> None:
    answer = await log_in(api, api.admin_key, next="/runbooks")

    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    assert 'href="/runbooks"' in answer.text
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await api.http.get("/runbooks")).status_code == 200


async def test_a_wrong_key_opens_nothing_and_is_told(api: Api) -> None:
    answer = await log_in(api, "runwatch_wrong")

    assert answer.status_code == 401
    assert "mistyped" in answer.text
    assert "Set-Cookie" not in answer.headers


async def test_a_key_that_may_not_read_does_not_log_in(api: Api) -> None:
    answer = await log_in(api, await api.new_key("ingest"))

    assert answer.status_code == 403
    assert "this needs read" in answer.text


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", ""])
async def test_a_login_leads_to_no_other_host(api: Api, path: str) -> None:
    answer = await log_in(api, api.admin_key, next=path)

    assert 'id="next" href="/"' in answer.text


async def test_another_site_logs_nobody_in(api: Api) -> None:
    answer = await api.http.post(
        "/login", data={"key": api.admin_key}, headers={"Origin": "https://evil.example"}
    )

    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")


@pytest.mark.parametrize(
    "headers", [{}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}]
)
async def test_another_site_changes_nothing_even_with_the_secret(
    api: Api, headers: dict[str, str]
) -> None:
    secret = page_secret(await log_in(api, api.admin_key))

    answer = await api.call("POST", "/rules", key="", json=RULES, headers=headers | secret)

    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")


@pytest.mark.parametrize(("method", "path"), [("POST", "/rules"), ("GET", "/rules")])
async def test_the_cookie_alone_changes_nothing_and_reads_no_data(
    api: Api, method: str, path: str
) -> None:
    body = RULES if method == "POST" else None
    secret = page_secret(await log_in(api, api.admin_key))

    without = await api.call(method, path, key="", json=body, headers=OURS)
    with_it = await api.call(method, path, key="", json=body, headers=OURS | secret)

    assert (without.status_code, without.json()["code"]) == (401, "unproven_session")
    assert with_it.is_success


async def test_the_secret_of_another_session_does_not_prove_this_one(api: Api) -> None:
    other = page_secret(await log_in(api, api.admin_key))
    await log_in(api, api.admin_key)

    answer = await api.call("GET", "/rules", key="", headers=other)

    assert (answer.status_code, answer.json()["code"]) == (401, "unproven_session")


async def test_the_secret_is_on_no_page_that_the_cookie_opens(api: Api) -> None:
    (secret,) = page_secret(await log_in(api, api.admin_key)).values()
    (cookie,) = api.http.cookies.values()

    pages = [await api.http.get(path) for path in ("/", "/settings", "/login", "/nothing")]

    assert "first admin" in pages[1].text
    assert not [page.url for page in pages if secret in page.text]
    assert secret not in cookie


@pytest.mark.parametrize(("method", "path"), [("POST", "/keys"), ("DELETE", "/keys/abcdefgh")])
async def test_a_login_neither_makes_nor_revokes_keys(api: Api, method: str, path: str) -> None:
    headers = OURS | page_secret(await log_in(api, api.admin_key))
    body = {"name": "x", "scopes": ["read"]} if method == "POST" else None

    answer = await api.call(method, path, key="", json=body, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (403, "key_wanted")
    assert len((await api.json("GET", "/keys"))["keys"]) == 1


async def test_a_session_ends_with_its_key(api: Api) -> None:
    reader = await api.new_key("read")
    await log_in(api, reader)

    await api.call("DELETE", f"/keys/{reader.split('_')[1]}")

    answer = await api.http.get("/runbooks")
    assert (answer.status_code, answer.json()["code"]) == (401, "revoked_key")


async def test_a_session_ends_after_a_shift(api: Api, hand_clock: HandClock) -> None:
    await log_in(api, api.admin_key)

    hand_clock.now += SESSION_S

    answer = await api.http.get("/runbooks")
    assert (answer.status_code, answer.json()["code"]) == (401, "expired_session")


async def test_a_session_that_was_left_opens_nothing(api: Api) -> None:
    await log_in(api, api.admin_key)
    kept = dict(api.http.cookies)

    await api.http.post("/logout", headers=OURS)
    api.http.cookies.update(kept)

    answer = await api.http.get("/runbooks")
    assert (answer.status_code, answer.json()["code"]) == (401, "unknown_session")


async def test_a_session_has_the_rights_of_its_key_and_no_more(api: Api) -> None:
    secret = page_secret(await log_in(api, await api.new_key("read")))

    answer = await api.call("GET", "/keys", key="", headers=secret)

    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")


async def test_a_browser_without_a_session_is_led_to_the_login_and_back(api: Api) -> None:
    answer = await api.http.get("/runbooks/non-finite", headers=BROWSER)

    assert answer.status_code == 303
    assert answer.headers["Location"] == "/login?next=/runbooks/non-finite"


async def test_a_link_from_another_site_is_asked_for_again_by_our_own_page(api: Api) -> None:
    headers = BROWSER | {"Sec-Fetch-Site": "cross-site"}

    answer = await api.http.get("/runbooks/non-finite", headers=headers)

    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0; url=/runbooks/' in answer.text


async def test_a_page_keeps_others_out_of_it(api: Api) -> None:
    headers = (await api.http.get("/login")).headers

    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_file_of_the_page_is_kept_for_ever_under_the_name_of_its_content(api: Api) -> None:
    html = (await api.http.get("/login")).text
    url = html.split('rel="stylesheet" href="')[1].split('"')[0]

    answer = await api.http.get(url)
    other = await api.http.get("/assets/0123456789abcdef/base.css")

    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/css")
    assert other.headers["Cache-Control"] == "no-store"


async def test_plotly_is_served_small(api: Api) -> None:
    answer = await api.http.get("/assets/x/plotly.min.js", headers={"Accept-Encoding": "gzip"})

    assert answer.headers["Content-Encoding"] == "gzip"
    assert b"plotly.js v" in answer.content[:300]


@pytest.mark.parametrize("name", ["%2e%2e/app.py", "..%2Fapp.py", "/etc/passwd"])
async def test_no_other_file_is_served(api: Api, name: str) -> None:
    assert (await api.http.get(f"/assets/x/{name}")).status_code == 404
