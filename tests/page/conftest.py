"""A real service and a real browser for each file of tests; no page may complain on its console.

The browser is Debian's Chromium, driven by Playwright, which downloads none of its own: if it is
there, the build without windows of its own, which takes half of the processor's time.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.page.visitor import DESKTOP, Theme, Visitor
from tests.waiting import LONGEST_S

OpenWindow = Callable[..., Visitor]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    folder = tmp_path_factory.mktemp("service")
    with RealService(folder, environment=NOBODY_IS_MISSED) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while Playwright runs, no other test can have an event loop."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=Path(path), args=["--no-sandbox"], timeout=1000 * LONGEST_S
        )
        yield opened
        opened.close()


@pytest.fixture
def window(browser: Browser, service: RealService) -> Iterator[OpenWindow]:
    """Opens windows: with the admin's key, or `key=...`, `theme="dark"`, `viewport=PHONE`."""
    opened: list[Visitor] = []

    def open_window(
        key: str | None = None, viewport: dict[str, int] = DESKTOP, theme: Theme = "light"
    ) -> Visitor:
        own = service.admin_key if key is None else key
        visitor = Visitor(browser, service.url, own, viewport=viewport, theme=theme)
        opened.append(visitor)
        return visitor

    yield open_window
    for visitor in opened:
        visitor.context.close()
    assert [visitor.complaints for visitor in opened] == [[] for _ in opened]
