"""A real service and a real browser for each file of tests; no page may complain on its console.

The browser is Debian's Chromium, driven by Playwright, which downloads none of its own: if it is
there, the build without windows of its own, which takes half of the processor's time.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.page.visitor import DESKTOP, Theme, Visitor, make_context
from tests.waiting import LONGEST_S

OpenWindow = Callable[..., Visitor]
Kind = tuple[int, int, Theme]


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
            executable_path=Path(path),
            args=["--no-sandbox", "--process-per-site"],
            timeout=1000 * LONGEST_S,
        )
        yield opened
        opened.close()


class Seat:
    """Where one visitor after the other sits: a context, of which an empty page stays open.

    With it stays the process that draws all pages of the service, and what it has compiled of their
    scripts, which takes it a second for each page of a run.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self._url = url
        self._stays = context.new_page()
        self._stays.goto("/healthz")

    def clear(self) -> None:
        """The next visitor finds it as it was made, but for files that the service lets a browser
        keep."""
        self.context.set_offline(False)
        for page in self.context.pages:
            if page != self._stays:
                page.close()
        storage = {"origin": self._url, "storageTypes": "all"}
        self.context.new_cdp_session(self._stays).send("Storage.clearDataForOrigin", storage)
        self.context.clear_cookies()


@pytest.fixture(scope="module")
def free() -> dict[Kind, list[Seat]]:
    """Nobody sits there; by the width, height and theme of their windows."""
    return defaultdict(list)


@pytest.fixture
def window(
    browser: Browser, service: RealService, free: dict[Kind, list[Seat]]
) -> Iterator[OpenWindow]:
    """Opens windows: with the admin's key, or `key=...`, `theme="dark"`, `viewport=PHONE`."""
    taken: list[tuple[Kind, Seat]] = []
    opened: list[Visitor] = []

    def open_window(
        key: str | None = None, viewport: dict[str, int] = DESKTOP, theme: Theme = "light"
    ) -> Visitor:
        kind = (viewport["width"], viewport["height"], theme)
        if not free[kind]:
            context = make_context(browser, service.url, viewport=viewport, theme=theme)
            free[kind].append(Seat(context, service.url))
        seat = free[kind].pop()
        taken.append((kind, seat))
        opened.append(Visitor(seat.context, service.admin_key if key is None else key))
        return opened[-1]

    yield open_window
    for kind, seat in taken:
        seat.clear()
        free[kind].append(seat)
    assert [visitor.complaints for visitor in opened] == [[] for _ in opened]
