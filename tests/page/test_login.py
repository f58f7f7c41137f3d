"""Logging in with a key, and what a stranger sees."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow

pytestmark = pytest.mark.heavy


def test_a_stranger_is_led_to_the_login_and_back(window: OpenWindow, service: RealService) -> None:
    visitor = window(key="")
    page = visitor.open("/runbooks/non-finite")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    visitor.shoot("login")

    page.get_by_label("API key").fill(service.admin_key)
    page.get_by_role("button", name="Log in").click()

    expect(page).to_have_url(f"{service.url}/runbooks/non-finite")
    expect(page.get_by_role("heading", name="NonFinite", exact=True)).to_be_visible()
    visitor.shoot("runbook")


def test_the_printed_address_logs_in_and_leads_on(window: OpenWindow, service: RealService) -> None:
    visitor = window(key="")
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    page = visitor.open(f"/login?next=/runbooks%3Fa%3Db#key={service.admin_key}")

    expect(page).to_have_url(f"{service.url}/runbooks?a=b")
    assert not [url for url in asked if service.admin_key in url.partition("#")[0]]


def test_the_same_address_on_another_site_only_fills_the_key_in(
    window: OpenWindow, service: RealService
) -> None:
    page = window(key="").page
    link = f"{service.url}/login#key={service.admin_key}"
    page.set_content(f'<a href="{link}">look here</a>')

    page.get_by_role("link").click()

    expect(page.get_by_label("API key")).to_have_value(service.admin_key)
    expect(page).to_have_url(f"{service.url}/login")


def test_after_logging_out_the_cookie_opens_nothing(window: OpenWindow) -> None:
    visitor = window()
    kept = visitor.context.cookies()

    visitor.page.get_by_role("button", name="Log out").click()
    expect(visitor.page.get_by_role("heading", name="Log in")).to_be_visible()
    visitor.context.add_cookies(kept)  # type: ignore[arg-type]  # what it gave, it takes
    visitor.open("/runbooks")

    expect(visitor.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_the_chosen_theme_stays(window: OpenWindow) -> None:
    visitor = window(key="", theme="light")
    page = visitor.open("/login")

    page.get_by_role("button", name="Change between light and dark").click()
    page.reload()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    visitor.shoot("login-dark")
