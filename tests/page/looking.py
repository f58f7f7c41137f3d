"""A page as somebody sees it who looks through all of it."""

from typing import Final

from playwright.sync_api import Page


def settle(page: Page) -> None:
    """Until all that comes into sight on the way down is there."""
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 600):
        page.evaluate("top => scrollTo(0, top)", top)
        page.wait_for_function(_IS_DRAWN)
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(0, 0)


_IS_DRAWN: Final = """() => !['.says', '#actions', '.loss-now'].some((place) =>
  [...document.querySelectorAll(place)].some((one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && box.bottom > 0 && box.top < innerHeight
      && /^(Loading|…)/.test(one.textContent.trim());
  }))"""


def out_of_sight(page: Page) -> list[str]:
    """What one would have to scroll sideways for: the page itself, and tables."""
    found: list[str] = page.evaluate(_SIDEWAYS)
    return found


_SIDEWAYS: Final = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
  .map((one) => `${one.scrollWidth} of ${one.clientWidth}: ${one.innerText.trim().slice(0, 60)}`)"""
