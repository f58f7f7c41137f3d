"""The line between a page and what it asks for: cut, held, and mended."""

from contextlib import suppress
from re import Pattern
from typing import Final

from playwright.sync_api import Error, Page, Route
from tests.waiting import until

Address = str | Pattern[str]
_LOOK_EVERY_MS: Final = 10.0


class Line:
    """Addresses are globs or patterns, as Playwright takes them."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: list[Route] = []

    def cut(self, address: Address) -> None:
        """Requests fail."""
        self._page.route(address, lambda route: route.abort())

    def hold(self, address: Address) -> None:
        """From here on requests wait: they neither fail nor are they answered."""
        self._page.route(address, lambda route: self._held.append(route))

    def wait(self) -> None:
        """Until a request is held."""

        def held() -> list[Route]:
            self._page.wait_for_timeout(_LOOK_EVERY_MS)  # only then are requests heard of
            return self._held

        until(held)

    def mend(self, address: Address) -> None:
        """Requests are answered, and so are those that wait."""
        self._page.unroute(address)
        for route in self._held:
            with suppress(Error):  # the page asked again, and does not want this answer any more
                route.continue_()
        self._held.clear()
