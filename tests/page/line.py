"""The line between a page and what it asks for: cut, held, and mended."""

from contextlib import suppress

from playwright.sync_api import Error, Page, Route


class Line:
    """Addresses are globs, as Playwright takes them."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: list[Route] = []

    def cut(self, address: str) -> None:
        """Requests fail."""
        self._page.route(address, lambda route: route.abort())

    def hold(self, address: str) -> None:
        """From here on requests wait: they neither fail nor are they answered."""
        self._page.route(address, lambda route: self._held.append(route))

    def mend(self, address: str) -> None:
        """Requests are answered, and so are those that wait."""
        self._page.unroute(address)
        for route in self._held:
            with suppress(Error):  # the page asked again, and does not want this answer any more
                route.continue_()
        self._held.clear()
