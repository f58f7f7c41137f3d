"""Another user of the host, who listens on another port of 127.0.0.1 and is sent our cookie.

Cookies are of a host, not of a port, `SameSite=Strict` or not: somebody who is logged in only has
to open one page of the other port.
"""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.waiting import until

pytestmark = pytest.mark.heavy

KEY = {"name": "backdoor", "scopes": ["admin"]}
RULES = {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "A", "when": "loss > 1"}]}]}


class OtherUser(ThreadingHTTPServer):
    """Serves a page, and keeps the cookies that browsers send for it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cookies: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        other = self.server
        assert isinstance(other, OtherUser)
        other.cookies += self.headers.get_all("Cookie", [])
        # Whoever followed a link comes without the cookie; our own second request has it.
        body = b"<script>if (!location.hash) location.href = '/x#1'</script><h1>hello</h1>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def other_user() -> Iterator[OtherUser]:
    with OtherUser() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_cookie_that_another_port_gets_opens_pages_and_no_more(
    window: OpenWindow, service: RealService, other_user: OtherUser
) -> None:
    visitor = window()
    visitor.foreseen = ("404",)  # its icon
    page = visitor.page
    page.set_content(f'<a href="{other_user.url}/">look here</a>')
    page.get_by_role("link").click()
    expect(page.get_by_role("heading", name="hello")).to_be_visible()
    until(lambda: other_user.cookies)
    cookie = other_user.cookies[-1]
    assert cookie.startswith(f"runwatch-{service.port}=")  # all that the other user has
    assert page.evaluate("localStorage.length") == 0

    http = urllib3.PoolManager(retries=False)
    headers = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
    api, opened = f"{service.url}/api/v1", http.request("GET", f"{service.url}/", headers=headers)
    made = http.request("POST", f"{api}/keys", headers=headers, json=KEY)
    changed = http.request("POST", f"{api}/rules", headers=headers, json=RULES)
    read = http.request("GET", f"{api}/runs", headers=headers)
    http.clear()

    assert [one.status for one in (opened, made, changed, read)] == [200, 403, 401, 401]
    page.goto(service.url)
    secret = page.evaluate("localStorage.getItem('runwatch.page-secret')")
    assert len(secret) == 43
    assert secret not in opened.data.decode() + cookie


def test_a_tab_that_a_link_opens_goes_on_with_the_login(window: OpenWindow) -> None:
    visitor = window()
    with visitor.context.expect_page() as opening:
        visitor.page.get_by_role("link", name="Rules").click(modifiers=["Control"])
    tab = opening.value

    tab.goto("/silences")
    tab.get_by_role("button", name="window").click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_label("Why").fill("the disks are exchanged")
    dialog.get_by_role("button", name="Create").click()

    expect(tab.get_by_text("the disks are exchanged")).to_be_visible()


def test_where_the_page_secret_is_lost_one_logs_in_before_one_writes(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window()
    page = visitor.open("/runbooks")
    page.evaluate("localStorage.clear()")

    visitor.open("/rules/new")

    expect(page).to_have_url(f"{service.url}/login?next=%2Frules%2Fnew")
