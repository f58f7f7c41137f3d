"""A person at a browser: real Chromium, which reports what a page complains of."""

import os
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect
from tests.waiting import LONGEST_S

Theme = Literal["light", "dark"]

DESKTOP: Final = {"width": 1360, "height": 860}
PHONE: Final = {"width": 390, "height": 844}

_SHOTS: Final = os.environ.get("SCREENSHOTS", "")
"""A folder; the tests write what they see into it."""

_LONGEST_MS: Final = 1000 * LONGEST_S
expect.set_options(timeout=_LONGEST_MS)


def make_context(
    browser: Browser, url: str, *, viewport: dict[str, int] = DESKTOP, theme: Theme = "light"
) -> BrowserContext:
    """What the windows of one visitor share: cookies and storage."""
    context = browser.new_context(
        base_url=url,
        viewport={"width": viewport["width"], "height": viewport["height"]},
        color_scheme=theme,
        device_scale_factor=1,
    )
    context.set_default_timeout(_LONGEST_MS)
    return context


class Visitor:
    """One browser window, logged in with a key or, with none, a stranger's."""

    def __init__(self, context: BrowserContext, key: str = "") -> None:
        self.complaints: list[str] = []
        self.foreseen: tuple[str, ...] = ()
        """Words of complaints that a test brings about: these are not kept."""
        self.context = context
        self.page: Page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        if key:
            self.log_in(key)

    def log_in(self, key: str) -> None:
        self.page.goto("/login?next=/runbooks")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(lambda url: "/login" not in url)

    def open(self, path: str) -> Page:
        self.page.goto(path)
        return self.page

    def shoot(self, name: str) -> None:
        """Keeps what is seen now, where somebody wants to look at it."""
        if _SHOTS:
            self.page.screenshot(path=Path(_SHOTS) / f"{name}.png", full_page=True)

    def let_it_draw(self) -> None:
        """What has come is on the page, if it will be."""
        self.page.evaluate("() => new Promise((drawn) => setTimeout(drawn, 300))")

    def ask(self, path: str) -> Any:
        """An answer of the API to this window's session."""
        secret = self.page.evaluate("localStorage.getItem('runwatch.page-secret')")
        headers = {"X-Page-Secret": secret}
        return self.context.request.get(f"/api/v1{path}", headers=headers).json()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"{message.text} ({message.location})")

    def _note(self, complaint: str) -> None:
        if not any(words in complaint for words in self.foreseen):
            self.complaints.append(complaint)
